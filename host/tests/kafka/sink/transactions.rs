//! The transactions of a job, seen from outside: what is visible when, who fences whom, and what is refused.

use super::*;
use crate::broker::PATIENCE;
use futures::future::join;
use rdkafka::producer::{BaseRecord, Producer};
use waterwheel::checkpoint::participants::LastResourceError;
use waterwheel::sink::GiveUp;

#[tokio::test]
async fn an_epoch_is_visible_when_its_checkpoint_is_committed() {
    let topic = broker().topic("epoch", 3);
    let job = Job::begun("epoch", &topic, 1).await;
    let mut writer = job.writer().await;
    assert_eq!(job.transactions().ids(), ["epoch-0", "epoch-1"]);
    for checkpoint in 1..=5 {
        let barrier = barrier(checkpoint);
        writer.write(&texts(&[format!("before {checkpoint}")])).await.unwrap();
        assert_eq!(writer.prepare(&barrier).await.unwrap(), Vec::<Value>::new());
        writer.write(&texts(&[format!("after {checkpoint}")])).await.unwrap();
        assert_eq!(broker().committed(&topic).len() as u64, ((checkpoint - 1) * 2).saturating_sub(1));
        job.transactions().commit(barrier.attempt).await.unwrap();
        job.transactions().commit(barrier.attempt).await.unwrap();
        let visible = broker().wait_committed(&topic, usize::try_from(checkpoint).unwrap() * 2 - 1);
        assert_eq!(visible.len() as u64, checkpoint * 2 - 1);
        let marker = job.transactions().read_marker().await.unwrap().unwrap();
        assert_eq!((marker.attempt, marker.checkpoint.0), (barrier.attempt, checkpoint));
    }
    let reading = job.reading();
    assert_eq!((reading.committed, reading.aborted), (5, 0));
    job.transactions().end().await;
    assert_eq!(job.reading().aborted, 1);
}

#[tokio::test]
async fn nothing_is_no_marker_and_a_released_one_says_so() {
    let topic = broker().topic("released", 1);
    let sink = sink(&json!({"topic": topic}), Guarantee::ExactlyOnce);
    let job = Job::open("released", &sink, Duration::from_secs(1)).await.unwrap();
    assert_eq!(job.transactions().read_marker().await.unwrap(), None);
    job.start(1).await;
    let mut writer = job.writer().await;
    writer.write(&texts(&["last"])).await.unwrap();
    let last = CheckpointBarrier { last: true, ..barrier(1) };
    writer.prepare(&last).await.unwrap();
    job.transactions().commit(last.attempt).await.unwrap();
    let marker = job.transactions().read_marker().await.unwrap().unwrap();
    assert_eq!((marker.attempt, marker.state), (last.attempt, MarkerState::Released));
    assert_eq!(broker().wait_committed(&topic, 1)[0].text(), "last");
}

#[tokio::test]
async fn two_writers_wait_for_each_other_and_share_a_transaction() {
    let topic = broker().topic("two", 1);
    let job = Job::begun("two", &topic, 2).await;
    let (mut first, mut second) = (job.writer().await, job.writer().await);
    first.write(&texts(&["a"])).await.unwrap();
    second.write(&texts(&["b"])).await.unwrap();
    let barrier = barrier(1);
    let waits = tokio::time::timeout(Duration::from_millis(300), first.prepare(&barrier)).await;
    assert!(waits.is_err(), "one writer alone ended the epoch");
    // It is dropped there only by this test: its arrival counts.
    second.write(&texts(&["c"])).await.unwrap();
    second.prepare(&barrier).await.unwrap();
    job.transactions().commit(barrier.attempt).await.unwrap();
    assert_eq!(broker().wait_committed(&topic, 3).len(), 3);
    // Both at a time, as those of one chain.
    let barrier = super::barrier(2);
    let (left, right) = join(first.prepare(&barrier), second.prepare(&barrier)).await;
    left.and(right).unwrap();
    job.transactions().commit(barrier.attempt).await.unwrap();
}

#[tokio::test]
async fn a_checkpoint_that_is_given_up_goes_on_in_the_same_transaction() {
    let topic = broker().topic("given-up", 1);
    let job = Job::begun("given-up", &topic, 2).await;
    let (mut first, mut second) = (job.writer().await, job.writer().await);
    let (given_up, next) = (barrier(1), barrier(1));
    first.write(&texts(&["a"])).await.unwrap();
    let (waited, ()) = join(first.prepare(&given_up), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(job.transactions().give_up(given_up.attempt), GiveUp::GivenUp);
    })
    .await;
    waited.unwrap();
    second.prepare(&given_up).await.unwrap();
    second.write(&texts(&["b"])).await.unwrap();
    let (left, right) = join(first.prepare(&next), second.prepare(&next)).await;
    left.and(right).unwrap();
    assert!(matches!(job.transactions().give_up(next.attempt), GiveUp::TooLate(_)));
    job.transactions().commit(next.attempt).await.unwrap();
    assert_eq!(broker().wait_committed(&topic, 2).len(), 2);
    assert_eq!(job.transactions().read_marker().await.unwrap().unwrap().attempt, next.attempt);
}

#[tokio::test]
async fn what_was_not_committed_is_gone_after_the_next_takeover() {
    let topic = broker().topic("gone", 1);
    let job = Job::begun("gone", &topic, 1).await;
    let mut writer = job.writer().await;
    let (committed, lost) = (barrier(1), barrier(2));
    writer.write(&texts(&["kept"])).await.unwrap();
    writer.prepare(&committed).await.unwrap();
    job.transactions().commit(committed.attempt).await.unwrap();
    writer.write(&texts(&["lost 1"])).await.unwrap();
    writer.prepare(&lost).await.unwrap();
    writer.write(&texts(&["lost 2"])).await.unwrap();
    // As a crash leaves it: nothing is aborted.
    job.transactions().fence(&[]).await.unwrap();
    assert_eq!(job.transactions().read_marker().await.unwrap().unwrap().attempt, committed.attempt);
    assert!(writer.write(&texts(&["too late"])).await.is_err());
    assert!(matches!(job.transactions().commit(lost.attempt).await, Err(LastResourceError::Lost(_))));
    job.transactions().begin(job.identity.clone(), 1).await.unwrap();
    let mut writer = job.writer().await;
    let again = barrier(2);
    writer.write(&texts(&["again"])).await.unwrap();
    writer.prepare(&again).await.unwrap();
    job.transactions().commit(again.attempt).await.unwrap();
    broker().wait_committed(&topic, 2);
    assert_eq!(broker().committed_texts(&topic), ["kept", "again"]);
}

#[tokio::test]
async fn a_zombie_is_fenced_and_told_so() {
    let topic = broker().topic("zombie", 1);
    let old = Job::begun("zombie", &topic, 1).await;
    let mut zombie = old.writer().await;
    let first = barrier(1);
    zombie.write(&texts(&["first"])).await.unwrap();
    zombie.prepare(&first).await.unwrap();
    old.transactions().commit(first.attempt).await.unwrap();
    zombie.write(&texts(&["of the zombie"])).await.unwrap();

    let new = Job::open("zombie", &old.sink, Duration::from_secs(1)).await.unwrap();
    new.transactions().fence(&[]).await.unwrap();
    assert_eq!(new.transactions().read_marker().await.unwrap().unwrap().attempt, first.attempt);
    new.transactions().begin(new.identity.clone(), 1).await.unwrap();
    let mut writer = new.writer().await;
    writer.write(&texts(&["of the new one"])).await.unwrap();

    let lost = barrier(2);
    let _may_go_through = zombie.write(&texts(&["more of the zombie"])).await;
    let prepared = zombie.prepare(&lost).await;
    assert!(prepared.is_err(), "a zombie ended its epoch");
    let loss = tokio::time::timeout(PATIENCE, old.transactions().lost()).await.unwrap();
    assert!(matches!(loss, LastResourceError::Fenced(_)), "{loss:?}");
    assert!(matches!(old.transactions().commit(lost.attempt).await, Err(LastResourceError::Fenced(_))));
    old.transactions().end().await;

    let second = barrier(2);
    writer.prepare(&second).await.unwrap();
    new.transactions().commit(second.attempt).await.unwrap();
    broker().wait_committed(&topic, 2);
    assert_eq!(broker().committed_texts(&topic), ["first", "of the new one"]);
}

#[tokio::test]
async fn a_zombie_that_had_ended_its_epoch_cannot_commit_it() {
    let topic = broker().topic("zombie-commit", 1);
    let old = Job::begun("zombie-commit", &topic, 1).await;
    let mut zombie = old.writer().await;
    let barrier = barrier(1);
    zombie.write(&texts(&["of the zombie"])).await.unwrap();
    zombie.prepare(&barrier).await.unwrap();
    let new = Job::open("zombie-commit", &old.sink, Duration::from_secs(1)).await.unwrap();
    new.transactions().fence(&[]).await.unwrap();
    let refused = old.transactions().commit(barrier.attempt).await;
    assert!(matches!(refused, Err(LastResourceError::Fenced(_))), "{refused:?}");
    assert_ne!(new.transactions().read_marker().await.unwrap().unwrap().attempt, barrier.attempt);
    assert_eq!(broker().committed(&topic), []);
}

#[tokio::test]
async fn ids_of_an_earlier_prefix_are_fenced_too() {
    let topic = broker().topic("also", 1);
    let earlier = broker().begin_transaction("earlier-0");
    crate::broker::send(&earlier, &topic, 0, ["of the earlier"]);
    earlier.flush(PATIENCE).unwrap();
    let sink = sink(&json!({"topic": topic}), Guarantee::ExactlyOnce);
    let job = Job::open("also", &sink, Duration::from_secs(1)).await.unwrap();
    job.transactions().fence(&["earlier-0".to_owned(), "also-0".to_owned()]).await.unwrap();
    assert!(earlier.commit_transaction(PATIENCE).is_err());
    assert_eq!(broker().committed(&topic), []);
}

#[tokio::test]
async fn a_transaction_that_timed_out_is_noticed_and_not_visible() {
    let topic = broker().topic("timed-out", 1);
    let options = json!({"topic": topic, "properties": {"transaction.timeout.ms": 12_000}});
    let sink = sink(&options, Guarantee::ExactlyOnce);
    let job = Job::open("timed-out", &sink, Duration::from_secs(1)).await.unwrap();
    job.start(1).await;
    let mut writer = job.writer().await;
    writer.write(&texts(&["slow"])).await.unwrap();
    tokio::time::sleep(Duration::from_secs(15)).await;
    let _may_go_through = writer.write(&texts(&["slower"])).await;
    assert!(writer.prepare(&barrier(1)).await.is_err(), "a transaction that had timed out was ended");
    let loss = tokio::time::timeout(PATIENCE, job.transactions().lost()).await.unwrap();
    assert!(matches!(loss, LastResourceError::Fenced(_)), "{loss:?}");
    assert_eq!(broker().committed(&topic), []);
}

#[tokio::test]
async fn the_marker_topic_is_compacted_and_checked() {
    let topic = broker().topic("markers", 1);
    let _job = Job::begun("markers", &topic, 1).await;
    let described = broker().tool(&["topics", "--describe", "--topic", "__waterwheel-markers"]);
    assert!(described.contains("cleanup.policy=compact") && described.contains("PartitionCount: 1"), "{described}");

    broker().create_topic("__waterwheel-forgetful", 1, &[("cleanup.policy", "delete")]);
    broker().create_topic("__waterwheel-wide", 2, &[("cleanup.policy", "compact")]);
    let sink = sink(&json!({"topic": topic}), Guarantee::ExactlyOnce);
    for (name, words) in [("forgetful", "its cleanup.policy is \"delete\""), ("wide", "it has 2 partitions")] {
        let Err(error) = Job::open(name, &sink, Duration::from_secs(1)).await else { panic!("{name} was taken") };
        let sentence = error.to_string();
        assert!(!error.retry_helps() && sentence.contains(words) && sentence.contains(&format!("__waterwheel-{name}")), "{sentence}");
    }
}

#[tokio::test]
async fn what_is_no_marker_is_refused_by_its_offset() {
    let topic = broker().topic("foreign", 1);
    for (name, key, what) in [
        ("foreign-value", "foreign-value", "a record that is no marker"),
        ("foreign-key", "other", "a record with the key \"other\" instead of \"foreign-key\""),
    ] {
        let job = Job::begun(name, &topic, 1).await;
        let (producer, markers) = (broker().producer(&[]), format!("__waterwheel-{name}"));
        producer.send(BaseRecord::to(&markers).partition(0).key(key).payload("scribble")).unwrap();
        producer.flush(PATIENCE).unwrap();
        let read = job.transactions().read_marker().await;
        let Err(LastResourceError::Refused(sentence)) = read else { panic!("a scribble was taken for a marker: {read:?}") };
        // The first marker and the end of its transaction stand before it.
        assert!(sentence.contains(&format!("topic {markers} holds {what}")) && sentence.contains("at offset 2"), "{sentence}");
    }
}

#[tokio::test]
async fn many_markers_do_not_matter() {
    let topic = broker().topic("many", 1);
    let job = Job::begun("many", &topic, 1).await;
    let mut writer = job.writer().await;
    for checkpoint in 1..=100 {
        let barrier = barrier(checkpoint);
        writer.prepare(&barrier).await.unwrap();
        job.transactions().commit(barrier.attempt).await.unwrap();
    }
    assert_eq!(job.transactions().read_marker().await.unwrap().unwrap().checkpoint.0, 100);
}

#[tokio::test]
async fn transactions_longer_than_the_broker_allows_are_refused_with_both_numbers() {
    let topic = broker().topic("long", 1);
    let options = json!({"topic": topic, "properties": {"transaction.timeout.ms": 900_001}});
    let sink = sink(&options, Guarantee::ExactlyOnce);
    let Err(error) = Job::open("long", &sink, Duration::from_secs(1)).await else { panic!("it was taken") };
    let sentence = error.to_string();
    assert!(!error.retry_helps() && sentence.contains("900001 ms") && sentence.contains("900000 ms"), "{sentence}");
}

/// What a person's own tool says of a transactional id.
fn epoch_of(id: &str) -> i32 {
    let described = broker().tool(&["transactions", "describe", "--transactional-id", id]);
    let (names, values) = described.split_once('\n').unwrap();
    let column = names.split_whitespace().position(|name| name == "ProducerEpoch").unwrap();
    values.split_whitespace().nth(column).unwrap().parse().unwrap()
}

#[tokio::test]
async fn an_id_is_taken_over_anew_when_its_commit_may_have_been_sent_twice() {
    let topic = broker().topic("unclean", 1);
    // Hardly a commit is answered within that.
    let options = json!({"topic": topic, "properties": {"retry.backoff.ms": 1}});
    let sink = sink(&options, Guarantee::ExactlyOnce);
    let job = Job::open("unclean", &sink, Duration::from_secs(1)).await.unwrap();
    job.start(1).await;
    let mut writer = job.writer().await;
    for checkpoint in 1..=4 {
        let barrier = barrier(checkpoint);
        writer.write(&texts(&[checkpoint.to_string()])).await.unwrap();
        writer.prepare(&barrier).await.unwrap();
        job.transactions().commit(barrier.attempt).await.unwrap();
    }
    broker().wait_committed(&topic, 4);
    assert_eq!(broker().committed_texts(&topic), ["1", "2", "3", "4"]);
    // Of five commits, with the one of the first marker; each id is opened twice more.
    let taken_over_anew = epoch_of("unclean-0") + epoch_of("unclean-1");
    assert!(taken_over_anew >= 2, "{taken_over_anew}");
}
