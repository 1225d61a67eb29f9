//! The decisions, by example and by property.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use uuid::Uuid;

use super::decide::{Allowed, Facts, decide};
use super::fork::{
    AfterClosing, BeforeClosing, Fork, Parent, Repeats, StartFrom, StartPlan, StartRefusal, after_closing, before_closing, plan_start,
    repeats,
};
use super::line::Compacted;
use super::retain::{entries_to_delete, files_to_delete, state_folder};
use super::slot::{AfterFencing, SlotHolder, Standing, after_fencing, holder, standing};
use super::testing::manifest;
use super::*;

fn log_of(manifests: impl IntoIterator<Item = Manifest>) -> LogView {
    let mut entries = BTreeMap::new();
    let mut job = JobName::new("orders").unwrap().first_incarnation();
    for manifest in manifests {
        job = manifest.job.clone();
        let path = format!("{job}/chk-{}/_metadata", manifest.slot);
        entries.insert(manifest.slot, LogEntry { path, content: Ok(Arc::new(manifest)) });
    }
    LogView::new(job, entries)
}

/// The same log with the entry of one slot damaged.
fn damage(log: &LogView, slot: u64) -> LogView {
    let entries = log.entries().map(|(at, entry)| {
        let content = if at == Slot(slot) { Err(Damage::Checksum) } else { entry.content.clone() };
        (at, LogEntry { path: entry.path.clone(), content })
    });
    LogView::new(log.job.clone(), entries.collect())
}

fn copy(of: &Manifest, generation: u64, slot: u64) -> Manifest {
    let mut copy = manifest("orders", generation, slot);
    copy.kind = ManifestKind::Copy { of: of.attempt, of_slot: of.slot, of_start: of.is_start() };
    copy.snapshot = of.snapshot.clone();
    copy
}

fn forked(by: &str, slot: u64) -> Manifest {
    let mut entry = manifest("orders", 1, slot);
    entry.kind = ManifestKind::Forked { by: JobId::try_from(by.to_owned()).unwrap(), intent: ForkIntent::Fresh };
    entry.snapshot = JobSnapshot::default();
    entry
}

fn marker(of: &Manifest) -> Marker {
    Marker {
        job: of.job.clone(),
        storage: of.storage,
        generation: of.generation,
        checkpoint: of.slot,
        attempt: of.attempt,
        state: MarkerState::Running,
    }
}

fn decide_with(log: &LogView, marker: &MarkerView, guarantee: OutputGuarantee, allowed: Allowed) -> Decision {
    decide(&Facts { log, storage: StorageId(Uuid::nil()), newest_generation: Some(Generation(9)), marker, guarantee, allowed })
}

fn decided(log: &LogView, marker: &MarkerView) -> Decision {
    decide_with(log, marker, OutputGuarantee::ExactlyOnce, Allowed::default())
}

fn restored_slot(decision: &Decision) -> Option<u64> {
    match decision {
        Decision::Restore(plan) => Some(plan.manifest.slot.0),
        _ => None,
    }
}

fn refusal(decision: Decision) -> Refusal {
    match decision {
        Decision::Refuse(refusal) => refusal,
        other => panic!("{other:?} is no refusal"),
    }
}

/// Manifest 0 and two checkpoints of generation 1.
fn three() -> [Manifest; 3] {
    [manifest("orders", 1, 0), manifest("orders", 1, 1), manifest("orders", 1, 2)]
}

#[test]
fn without_a_last_resource_the_newest_manifest_decides() {
    let none = MarkerView::NoLastResource;
    assert_eq!(decided(&log_of([]), &none), Decision::NewJob);
    assert_eq!(restored_slot(&decided(&log_of(three()), &none)), Some(2));
}

#[test]
fn with_a_last_resource_the_marker_decides_wherever_its_manifest_stands() {
    let [start, one, two] = three();
    let again = copy(&one, 2, 3);
    let log = log_of([start, one.clone(), two, again]);
    let decision = decided(&log, &MarkerView::Found(marker(&one)));
    assert_eq!(restored_slot(&decision), Some(1));
}

#[test]
fn the_newest_copy_gives_the_revision() {
    let [start, one, two] = three();
    let mut again = copy(&one, 2, 3);
    again.snapshot.plan.number = 7;
    let log = log_of([start, one.clone(), two, again]);
    let Decision::Restore(plan) = decided(&log, &MarkerView::Found(marker(&one))) else {
        panic!("no restore");
    };
    assert_eq!((plan.manifest.slot, plan.revision.number), (Slot(1), 7));
}

#[test]
fn a_stop_recorded_on_top_of_the_decided_manifest_is_not_forgotten() {
    let [start, one, _] = three();
    let mut stop = manifest("orders", 1, 2);
    stop.kind = ManifestKind::StopRecorded;
    stop.snapshot = one.snapshot.clone();
    stop.snapshot.pending_stop = Some(StopRequest { drain: true, savepoint: None });
    let last = manifest("orders", 1, 3);
    let log = log_of([start, one.clone(), stop, last.clone()]);
    let pending = |of: &Manifest| match decided(&log, &MarkerView::Found(marker(of))) {
        Decision::Restore(plan) => plan.pending_stop.is_some(),
        other => panic!("{other:?}"),
    };
    assert!(pending(&one));
    assert!(!pending(&last));
}

#[test]
fn a_marker_that_is_not_in_the_log_or_too_old_or_of_the_future_is_refused() {
    let [start, one, mut two] = three();
    let stranger = manifest("orders", 3, 5);
    let log = log_of([start.clone(), one.clone(), two.clone()]);
    let found = |of: &Manifest| MarkerView::Found(marker(of));
    assert!(matches!(refusal(decided(&log, &found(&stranger))), Refusal::MarkerNotInLog { .. }));
    let future = manifest("orders", 10, 2);
    assert!(matches!(refusal(decided(&log, &found(&future))), Refusal::MarkerFromLaterGeneration { .. }));
    two.committed = Some(CommittedPoint { slot: Slot(1), attempt: one.attempt });
    let log = log_of([start.clone(), one, two]);
    let sentence = refusal(decided(&log, &found(&start)));
    assert_eq!(sentence, Refusal::MarkerTooOld { marker: Slot(0), committed: Slot(1) });
}

#[test]
fn a_missing_marker_is_only_harmless_before_the_first_checkpoint() {
    let [start, one, mut two] = three();
    two.committed = Some(CommittedPoint { slot: Slot(1), attempt: one.attempt });
    two.snapshot.transactional_ids = vec!["orders-0".to_owned()];
    let absent = MarkerView::Absent(MissingMarker::Refuse);
    let begun = log_of([start.clone(), copy(&start, 2, 1)]);
    let Decision::Restore(plan) = decided(&begun, &absent) else {
        panic!("no restore");
    };
    assert_eq!((plan.manifest.slot, plan.genesis), (Slot(0), true));
    let running = log_of([start, one, two]);
    assert!(matches!(refusal(decided(&running, &absent)), Refusal::MarkerMissing { .. }));
    assert_eq!(restored_slot(&decided(&running, &MarkerView::Absent(MissingMarker::Committed))), Some(2));
    assert_eq!(restored_slot(&decided(&running, &MarkerView::Absent(MissingMarker::Aborted))), Some(1));
}

#[test]
fn a_last_resource_may_come_to_a_job_that_had_none() {
    let log = log_of(three());
    let Decision::Restore(plan) = decided(&log, &MarkerView::Absent(MissingMarker::Refuse)) else {
        panic!("no restore");
    };
    assert_eq!((plan.manifest.slot, plan.genesis), (Slot(2), true));
}

#[test]
fn a_last_resource_may_only_leave_when_a_person_says_what_it_committed() {
    let [start, one, mut two] = three();
    two.committed = Some(CommittedPoint { slot: Slot(1), attempt: one.attempt });
    two.snapshot.transactional_ids = vec!["orders-0".to_owned(), "orders-1".to_owned()];
    let log = log_of([start, one, two]);
    let none = MarkerView::NoLastResource;
    let sentence = refusal(decided(&log, &none)).to_string();
    assert!(sentence.contains("checkpoint 2 of orders") && sentence.contains("orders-0, orders-1"), "{sentence}");
    let said = |missing_marker| decide_with(&log, &none, OutputGuarantee::AtLeastOnce, Allowed { missing_marker, ..Allowed::default() });
    assert_eq!(restored_slot(&said(MissingMarker::Committed)), Some(2));
    assert_eq!(restored_slot(&said(MissingMarker::Aborted)), Some(1));
}

#[test]
fn a_foreign_marker_is_refused_unless_released_or_exactly_what_the_fork_replaces() {
    let other = manifest("payments", 1, 4);
    let foreign = |state| MarkerView::Found(Marker { state, ..marker(&other) });
    let empty = log_of([]);
    let sentence = refusal(decided(&empty, &foreign(MarkerState::Running))).to_string();
    assert!(sentence.contains("payments") && sentence.contains("--take-over-prefix"), "{sentence}");
    assert_eq!(decided(&empty, &foreign(MarkerState::Released)), Decision::NewJob);

    let mut start = manifest("orders", 1, 0);
    start.snapshot.replaces =
        Some(Replaced { closed: Some(other.point()), restored: None, marker: Some(other.attempt), reason: String::new() });
    assert_eq!(restored_slot(&decided(&log_of([start.clone()]), &foreign(MarkerState::Running))), Some(0));
    let moved_on = MarkerView::Found(marker(&manifest("payments", 1, 5)));
    assert!(matches!(refusal(decided(&log_of([start]), &moved_on)), Refusal::ForeignMarker { .. }));
}

#[test]
fn a_log_that_was_closed_is_refused_by_name_and_a_stale_forked_counts_for_nothing() {
    let [start, one, two] = three();
    let none = MarkerView::NoLastResource;
    let closed = log_of([start.clone(), one.clone(), forked("orders.2", 2)]);
    assert!(refusal(decided(&closed, &none)).to_string().contains("orders.2"));
    let stale = log_of([start, forked("orders.2", 1), two]);
    assert_eq!(restored_slot(&decided(&stale, &none)), Some(2));
}

#[test]
fn a_damaged_newest_manifest_is_refused_by_name_where_output_could_repeat() {
    let log = damage(&log_of(three()), 2);
    let none = MarkerView::NoLastResource;
    let refused = refusal(decided(&log, &none));
    assert!(refused.to_string().contains("orders/chk-2/_metadata") && refused.to_string().contains("slot 1"), "{refused}");
    let allowed = Allowed { older_than_damaged: true, ..Allowed::default() };
    let Decision::Restore(plan) = decide_with(&log, &none, OutputGuarantee::ExactlyOnce, allowed) else {
        panic!("no restore");
    };
    assert_eq!((plan.manifest.slot, plan.passed_over), (Slot(1), vec!["orders/chk-2/_metadata".to_owned()]));

    let mut weak = three();
    weak.iter_mut().for_each(|manifest| manifest.snapshot.plan.guarantee = OutputGuarantee::AtLeastOnce);
    let log = damage(&log_of(weak.clone()), 2);
    assert_eq!(restored_slot(&decide_with(&log, &none, OutputGuarantee::AtLeastOnce, Allowed::default())), Some(1));
    // An older damaged entry decides nothing.
    assert_eq!(restored_slot(&decided(&damage(&log_of(three()), 1), &none)), Some(2));
    // With a marker the damaged entry matters only if it is the marker's.
    let [_, one, two] = three();
    let log = damage(&log_of(three()), 2);
    assert_eq!(restored_slot(&decided(&log, &MarkerView::Found(marker(&one)))), Some(1));
    assert!(matches!(refusal(decided(&log, &MarkerView::Found(marker(&two)))), Refusal::Damaged { .. }));
}

#[test]
fn a_finished_job_is_finished_with_and_without_a_marker() {
    let [start, one, mut last] = three();
    last.snapshot.end_of_input = true;
    let mut end = manifest("orders", 1, 3);
    end.kind = ManifestKind::Final;
    end.snapshot = last.snapshot.clone();
    let log = log_of([start.clone(), one.clone(), last.clone(), end]);
    assert!(matches!(decided(&log, &MarkerView::NoLastResource), Decision::Finished(_)));
    assert!(matches!(decided(&log, &MarkerView::Found(marker(&last))), Decision::Finished(_)));
    // Not yet: its last output may not be visible.
    let log = log_of([start, one, last]);
    assert_eq!(restored_slot(&decided(&log, &MarkerView::NoLastResource)), Some(2));
}

#[test]
fn an_occupied_slot_means_what_its_attempt_says() {
    let ours = manifest("orders", 3, 5);
    let mut earlier = manifest("orders", 3, 9);
    earlier.slot = ours.slot;
    assert_eq!(holder(&ours, &ours), SlotHolder::Ours);
    assert_eq!(holder(&ours, &earlier), SlotHolder::EarlierAttemptOfThisRun);
    assert_eq!(holder(&ours, &manifest("orders", 2, 5)), SlotHolder::AnotherRun { generation: Generation(2) });
    assert!(matches!(holder(&ours, &forked("orders.2", 5)), SlotHolder::Forked { by } if by.as_str() == "orders.2"));
    assert_eq!(standing(Generation(3), Generation(3)), Standing::Newest);
    assert_eq!(standing(Generation(3), Generation(4)), Standing::Superseded { by: Generation(4) });
}

#[test]
fn a_fenced_run_stops_only_when_somebody_newer_is_there() {
    let own = manifest("orders", 3, 5);
    let newer = Marker { generation: Generation(4), ..marker(&own) };
    let other = marker(&manifest("payments", 1, 1));
    let of_own = marker(&own);
    let after = |newest, marker| after_fencing(&own.job, Generation(3), Generation(newest), marker);
    assert_eq!(after(3, Some(&of_own)), AfterFencing::Recover);
    assert_eq!(after(3, None), AfterFencing::Recover);
    assert_eq!(after(4, None), AfterFencing::Superseded { by: Generation(4) });
    assert_eq!(after(3, Some(&newer)), AfterFencing::Superseded { by: Generation(4) });
    assert!(matches!(after(3, Some(&other)), AfterFencing::TakenOver { .. }));
}

#[test]
fn starts_are_planned_from_what_the_newest_incarnation_says() {
    let empty = log_of([]);
    let running = log_of(three());
    let parent = Parent { view: log_of(three().into_iter().chain([forked("orders.2", 3)])), intent: ForkIntent::Fresh };
    assert_eq!(plan_start(&empty, None, &StartFrom::Fresh).unwrap(), StartPlan::OwnLog);
    assert_eq!(plan_start(&running, None, &StartFrom::Latest).unwrap(), StartPlan::OwnLog);
    assert_eq!(plan_start(&running, None, &StartFrom::Slot(Slot(2))).unwrap(), StartPlan::OwnLog);
    let StartPlan::Fork(fork) = plan_start(&running, None, &StartFrom::Slot(Slot(1))).unwrap() else {
        panic!("no fork");
    };
    assert_eq!((fork.id.as_str(), fork.closes.as_str()), ("orders.2", "orders"));
    assert!(matches!(plan_start(&running, None, &StartFrom::Slot(Slot(7))), Err(StartRefusal::NoSuchCheckpoint { .. })));
    // A fork that died goes on, with what is asked for now or with what it set out to do.
    let child = LogView::new(JobId::try_from("orders.2".to_owned()).unwrap(), BTreeMap::new());
    let StartPlan::ContinueFork(fork) = plan_start(&child, Some(&parent), &StartFrom::Latest).unwrap() else {
        panic!("no fork");
    };
    assert_eq!((fork.id.as_str(), fork.closes.as_str(), fork.intent), ("orders.2", "orders", ForkIntent::Fresh));
    let again = plan_start(&child, Some(&parent), &StartFrom::Slot(Slot(1))).unwrap();
    assert!(matches!(again, StartPlan::ContinueFork(Fork { intent: ForkIntent::Restore { slot: Slot(1), .. }, .. })));
}

#[test]
fn a_checkpoint_of_another_job_starts_a_new_job_once_and_then_resumes_it() {
    let mut other = manifest("payments", 1, 4);
    other.snapshot.checkpoint = other.attempt;
    let from = StartFrom::Manifest { manifest: Arc::new(other.clone()), path: "payments/chk-4".to_owned() };
    let StartPlan::Fork(fork) = plan_start(&log_of([]), None, &from).unwrap() else {
        panic!("no fork");
    };
    assert_eq!((fork.id.as_str(), fork.closes.as_str()), ("orders", "payments"));
    let mut start = manifest("orders", 1, 0);
    start.snapshot.replaces =
        Some(Replaced { closed: Some(other.point()), restored: Some(other.point()), marker: None, reason: String::new() });
    assert_eq!(plan_start(&log_of([start]), None, &from).unwrap(), StartPlan::OwnLog);
    assert!(matches!(plan_start(&log_of(three()), None, &from), Err(StartRefusal::AlreadyExists { .. })));
}

#[test]
fn a_rejected_checkpoint_cannot_be_restored() {
    let [start, one, two] = three();
    let log = log_of([start, one.clone(), two, copy(&one, 2, 3), manifest("orders", 2, 4), manifest("orders", 2, 5)]);
    assert!(matches!(plan_start(&log, None, &StartFrom::Slot(Slot(2))), Err(StartRefusal::Rejected { .. })));
    assert!(plan_start(&log, None, &StartFrom::Slot(Slot(1))).is_ok());
}

#[test]
fn closing_a_log_counts_only_as_its_newest_entry() {
    let fork = JobId::try_from("orders.2".to_owned()).unwrap();
    let [start, one, two] = three();
    let open = log_of([start.clone(), one.clone()]);
    assert_eq!(before_closing(&open, &fork), BeforeClosing::Close(Slot(2)));
    assert_eq!(before_closing(&log_of([]), &fork), BeforeClosing::Empty);
    let closed = log_of([start.clone(), one.clone(), forked("orders.2", 2)]);
    assert_eq!(before_closing(&closed, &fork), BeforeClosing::ClosedByThisFork);
    let stolen = log_of([start.clone(), one.clone(), forked("audit", 2)]);
    assert!(matches!(before_closing(&stolen, &fork), BeforeClosing::ClosedByAnother(by) if by.as_str() == "audit"));

    let none = MarkerView::NoLastResource;
    assert!(matches!(after_closing(&closed, &fork, &none), AfterClosing::Closed(replaced) if replaced.slot == Slot(1)));
    let moved = log_of([start.clone(), forked("orders.2", 1), two]);
    assert_eq!(after_closing(&moved, &fork, &none), AfterClosing::NotClosed { newest: Slot(2) });
    assert!(matches!(after_closing(&damage(&closed, 1), &fork, &none), AfterClosing::Damaged { .. }));
    let by_marker = after_closing(&closed, &fork, &MarkerView::Found(marker(&start)));
    assert!(matches!(by_marker, AfterClosing::Closed(replaced) if replaced.slot == Slot(0)));
    let absent = MarkerView::Absent(MissingMarker::Refuse);
    assert!(matches!(after_closing(&closed, &fork, &absent), AfterClosing::Closed(_)));
    let mut decided_elsewhere = manifest("orders", 1, 1);
    decided_elsewhere.snapshot.transactional_ids = vec!["orders-0".to_owned()];
    let closed = log_of([start.clone(), decided_elsewhere, forked("orders.2", 2)]);
    assert_eq!(after_closing(&closed, &fork, &absent), AfterClosing::MarkerElsewhere);
    assert!(matches!(after_closing(&log_of([start, forked("orders.2", 1)]), &fork, &absent), AfterClosing::Closed(_)));
}

#[test]
fn a_fork_can_be_replaced_before_it_committed_anything() {
    let other = manifest("payments", 1, 4);
    let mut start = manifest("orders", 1, 0);
    start.snapshot.replaces =
        Some(Replaced { closed: Some(other.point()), restored: None, marker: Some(other.attempt), reason: String::new() });
    let closed = log_of([start.clone(), forked("orders.2", 1)]);
    let fork = JobId::try_from("orders.2".to_owned()).unwrap();
    let still = MarkerView::Found(marker(&other));
    assert!(matches!(after_closing(&closed, &fork, &still), AfterClosing::Closed(replaced) if replaced.slot == Slot(0)));
    let moved_on = MarkerView::Found(marker(&manifest("payments", 1, 5)));
    assert_eq!(after_closing(&closed, &fork, &moved_on), AfterClosing::MarkerElsewhere);
}

#[test]
fn repeated_output_is_counted_in_checkpoints() {
    let [start, one, two] = three();
    assert_eq!(repeats(Some(&two), &two), Repeats::Nothing);
    assert_eq!(repeats(Some(&two), &copy(&two, 2, 3)), Repeats::Nothing);
    assert_eq!(repeats(Some(&start), &two), Repeats::Checkpoints(2));
    assert_eq!(repeats(None, &two), Repeats::Checkpoints(2));
    assert_eq!(repeats(None, &start), Repeats::Nothing);
    assert_eq!(repeats(Some(&two), &one), Repeats::NeverCommitted);
    let mut weak = two.clone();
    weak.snapshot.plan.guarantee = OutputGuarantee::AtLeastOnce;
    assert_eq!(repeats(Some(&start), &weak), Repeats::Nothing);
}

fn file(path: &str, kind: StateFileKind) -> StateFile {
    let key_groups = KeyGroupRange { first: 0, last: 127 };
    StateFile { path: path.to_owned(), kind, bytes: 1, checksum: Checksum::of(b"x"), key_groups }
}

fn draft(attempt: u64, change: ChainChange, work: &str) -> CheckpointDraft {
    let subtasks = BTreeMap::from([(0, SubtaskDraft { chain: change, extra: serde_json::Value::Null })]);
    CheckpointDraft {
        attempt: Attempt(Uuid::from_u128(attempt.into())),
        operators: BTreeMap::from([("count".to_owned(), OperatorDraft { subtasks, extra: serde_json::Value::Null })]),
        prepared: vec![SinkWork { sink: "out".to_owned(), work: work.into() }],
        ..CheckpointDraft::default()
    }
}

fn chain_of(snapshot: &JobSnapshot) -> Vec<&str> {
    snapshot.operators["count"].subtasks[&0].chain.iter().map(|file| file.path.as_str()).collect()
}

fn work_of(snapshot: &JobSnapshot) -> Vec<&str> {
    snapshot.prepared.iter().map(|work| work.work.as_str().unwrap()).collect()
}

#[test]
fn what_a_given_up_checkpoint_prepared_is_in_the_next_manifest() {
    let append = |path: &str| ChainChange::Append(file(path, StateFileKind::Delta));
    let mut line = Line::new(JobName::new("orders").unwrap().first_incarnation(), Generation(1), JobSnapshot::default());
    line.give_up(&draft(1, append("d1"), "w1"));
    line.give_up(&draft(2, ChainChange::Unchanged, "w2"));
    let snapshot = line.assemble(&draft(3, append("d3"), "w3"));
    assert_eq!((chain_of(&snapshot), work_of(&snapshot)), (vec!["d1", "d3"], vec!["w1", "w2", "w3"]));
    assert_eq!(snapshot.checkpoints_on_line, 1);
    line.completed(&snapshot);
    let next = line.assemble(&draft(4, ChainChange::Append(file("b4", StateFileKind::Base)), "w4"));
    assert_eq!((chain_of(&next), work_of(&next)), (vec!["b4"], vec!["w4"]));
}

#[test]
fn a_compaction_is_adopted_only_while_its_files_begin_the_chain() {
    let append = |path: &str| ChainChange::Append(file(path, StateFileKind::Delta));
    let mut line = Line::new(JobName::new("orders").unwrap().first_incarnation(), Generation(1), JobSnapshot::default());
    for number in 1..=3 {
        let snapshot = line.assemble(&draft(number, append(&format!("d{number}")), "w"));
        line.completed(&snapshot);
    }
    let folded = [file("d1", StateFileKind::Delta), file("d2", StateFileKind::Delta)];
    let base = file("b", StateFileKind::Base);
    line.give_up(&draft(4, append("d4"), "w"));
    assert_eq!(line.compact("count", 0, &folded, base.clone()), Compacted::Adopted);
    assert_eq!(chain_of(&line.assemble(&draft(5, append("d5"), "w"))), ["b", "d3", "d4", "d5"]);
    assert_eq!(line.compact("count", 0, &folded, base.clone()), Compacted::Outdated);
    assert_eq!(line.compact("count", 0, &[file("d4", StateFileKind::Delta)], base), Compacted::Outdated);
}

/// A random but lawful log: runs put checkpoints, then the next one copies some earlier entry of the line and goes on.
fn any_log() -> impl Strategy<Value = Vec<Manifest>> {
    prop::collection::vec((1_u64..5, 0_u64..3), 1..6).prop_map(|runs| {
        let mut manifests = vec![manifest("orders", 1, 0)];
        let mut generation = 1;
        for (checkpoints, back) in runs {
            for _ in 0..checkpoints {
                let slot = manifests.len() as u64;
                manifests.push(manifest("orders", generation, slot));
            }
            generation += 1;
            // A marker may send a run back behind what the log holds.
            let of = manifests[manifests.len() - 1 - (back.min(checkpoints - 1) as usize)].clone();
            let slot = manifests.len() as u64;
            manifests.push(copy(&of, generation, slot));
        }
        let slot = manifests.len() as u64;
        manifests.push(manifest("orders", generation, slot));
        manifests
    })
}

proptest! {
    #[test]
    fn retention_keeps_what_a_recovery_needs(manifests in any_log(), retained in 1_usize..4, stale in prop::option::of(0_u64..20)) {
        let newest = manifests.last().unwrap().slot;
        let log = log_of(manifests.clone());
        let gone: BTreeSet<Slot> = entries_to_delete(&log, newest, retained).into_iter().collect();
        let line = log.line(newest);
        let checkpoints: Vec<Slot> = line.iter().copied().filter(|slot| manifests[slot.0 as usize].kind == ManifestKind::Checkpoint).collect();
        // The newest entry and the promised number of checkpoints stay; what stays is dense up to the newest.
        prop_assert!(!gone.contains(&newest));
        for kept in checkpoints.iter().take(retained) {
            prop_assert!(!gone.contains(kept));
        }
        let stays: Vec<u64> = (0..=newest.0).filter(|slot| !gone.contains(&Slot(*slot))).collect();
        prop_assert_eq!(stays.len() as u64, newest.0 - stays[0] + 1);
        // Deciding gives the same before and after.
        let none = MarkerView::NoLastResource;
        let after = log_of(manifests.iter().filter(|manifest| !gone.contains(&manifest.slot)).cloned());
        prop_assert_eq!(restored_slot(&decided(&log, &none)), restored_slot(&decided(&after, &none)));
        // A superseded run that fills a freed slot changes nothing, and goes by age.
        if let Some(slot) = stale.filter(|slot| gone.contains(&Slot(*slot))) {
            let mut zombie = manifest("orders", 1, slot);
            zombie.attempt = Attempt(Uuid::from_u128(77));
            let haunted = log_of(manifests.iter().filter(|manifest| !gone.contains(&manifest.slot)).cloned().chain([zombie]));
            prop_assert_eq!(restored_slot(&decided(&haunted, &none)), restored_slot(&decided(&after, &none)));
            prop_assert!(entries_to_delete(&haunted, newest, 1).contains(&Slot(slot)));
        }
    }

    #[test]
    fn every_file_that_a_kept_entry_names_stays(names in prop::collection::vec(prop::collection::vec(0_u64..12, 0..5), 1..8), keep in 1_usize..8, own in 1_u64..4) {
        let folder = |number: u64| state_folder(&JobName::new("orders").unwrap().first_incarnation(), Generation(number % 4));
        let path = |number: u64| format!("{}/{number}", folder(number));
        let manifests: Vec<Manifest> = names.iter().enumerate().map(|(slot, files)| {
            let mut manifest = manifest("orders", 1, slot as u64);
            let chain = files.iter().map(|number| file(&path(*number), StateFileKind::Delta)).collect();
            let subtask = SubtaskState { chain, extra: serde_json::Value::Null };
            let operator = OperatorState { subtasks: BTreeMap::from([(0, subtask)]), extra: serde_json::Value::Null };
            manifest.snapshot.operators.insert("count".to_owned(), operator);
            manifest
        }).collect();
        let log = log_of(manifests.clone());
        let deleted: Vec<Slot> = manifests.iter().map(|manifest| manifest.slot).take(manifests.len().saturating_sub(keep)).collect();
        let listed: Vec<String> = (0..12).map(path).collect();
        let gone = files_to_delete(&log, &deleted, Generation(own), &listed);
        let needed: BTreeSet<&str> = manifests[deleted.len()..].iter().flat_map(|manifest| manifest.snapshot.files()).map(|file| file.path.as_str()).collect();
        let named: BTreeSet<&str> = manifests.iter().flat_map(|manifest| manifest.snapshot.files()).map(|file| file.path.as_str()).collect();
        for file in &listed {
            let of_own_run = file.starts_with(&format!("{}/", folder(own))) || (0..4).any(|generation| generation >= own && file.starts_with(&format!("{}/", folder(generation))));
            let goes = !needed.contains(file.as_str()) && (named.contains(file.as_str()) || !of_own_run);
            prop_assert_eq!(gone.contains(file), goes, "{}", file);
        }
    }

    #[test]
    fn carrying_over_never_loses_or_reorders_work(given_up in prop::collection::vec(any::<bool>(), 1..20)) {
        let mut line = Line::new(JobName::new("orders").unwrap().first_incarnation(), Generation(1), JobSnapshot::default());
        let mut committed = Vec::new();
        for (number, gives_up) in given_up.iter().chain([&false]).enumerate() {
            let draft = draft(number as u64 + 1, ChainChange::Append(file(&number.to_string(), StateFileKind::Delta)), &number.to_string());
            if *gives_up {
                line.give_up(&draft);
            } else {
                let snapshot = line.assemble(&draft);
                committed.extend(work_of(&snapshot).into_iter().map(str::to_owned));
                line.completed(&snapshot);
            }
        }
        let all: Vec<String> = (0..=given_up.len()).map(|number| number.to_string()).collect();
        prop_assert_eq!(&committed, &all);
        let chain: Vec<String> = line.chain("count", 0).into_iter().map(|file| file.path).collect();
        prop_assert_eq!(chain, all);
    }

    #[test]
    fn the_decision_never_panics_and_never_restores_what_is_damaged(manifests in any_log(), broken in prop::collection::btree_set(0_u64..12, 0..4), named in 0_usize..12) {
        let mut log = log_of(manifests.clone());
        for slot in &broken {
            log = damage(&log, *slot);
        }
        let of = &manifests[named % manifests.len()];
        for view in [MarkerView::NoLastResource, MarkerView::Absent(MissingMarker::Refuse), MarkerView::Absent(MissingMarker::Committed), MarkerView::Absent(MissingMarker::Aborted), MarkerView::Found(marker(of))] {
            let decision = decided(&log, &view);
            if let Some(slot) = restored_slot(&decision) {
                prop_assert!(!broken.contains(&slot));
                if let MarkerView::Found(marker) = &view {
                    prop_assert_eq!(slot, marker.checkpoint.0);
                }
            }
        }
    }
}
