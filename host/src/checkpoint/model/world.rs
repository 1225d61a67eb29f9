//! The state of one simulated world, and what must never happen in it.

use std::collections::BTreeMap;
use std::future::Future;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use bytes::Bytes;

use super::super::protocol::{Attempt, Generation, JobId, Manifest, ManifestKind, envelope};
use super::broker::Broker;

/// How many positions the source has.
pub(super) const POSITIONS: u64 = 6;
/// The two file sinks of the job, in the order of its plan.
pub(super) const SINKS: [&str; 2] = ["first", "second"];
/// The job.
pub(super) const JOB: &str = "orders";

/// A small generator of numbers (splitmix64): everything random comes from the seed through it.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_F491_4F6C_DD1D) ^ 0x5DEE_CE66)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// How many faults of each kind are left.
#[derive(Clone, Debug, Default)]
pub(super) struct Budget {
    pub(super) lost: u64,
    pub(super) failed: u64,
    pub(super) sink: u64,
    pub(super) give_up: u64,
    pub(super) crash: u64,
    pub(super) start: u64,
    pub(super) fork: u64,
    pub(super) stop: u64,
    pub(super) time_out: u64,
}

/// What happened, to show that the check exercises something.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) crashes: u64,
    pub(super) recoveries: u64,
    pub(super) superseded: u64,
    pub(super) given_up: u64,
    pub(super) late: u64,
    pub(super) forks: u64,
    pub(super) stops: u64,
    pub(super) deleted: u64,
}

/// A request that the sender has given up on and that still arrives.
#[derive(Clone, Debug)]
pub(super) enum Late {
    Create(String, Bytes),
    Delete(String),
    EndTransaction { id: usize, epoch: u64 },
    CompleteTransaction { id: usize },
}

/// A pending or visible file of one sink.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FileName {
    pub(super) sink: String,
    pub(super) job: JobId,
    pub(super) generation: Generation,
    pub(super) number: u64,
}

/// Where an incarnation began, as its manifest 0 says.
#[derive(Clone, Debug)]
pub(super) struct Start {
    pub(super) position: u64,
    /// The incarnation it replaced, with the position whose output counts.
    pub(super) replaced: Option<(JobId, u64)>,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) dice: Dice,
    pub(super) budget: Budget,
    pub(super) counts: Counts,
    pub(super) objects: BTreeMap<String, Bytes>,
    pub(super) late: Vec<Late>,
    pub(super) pending: BTreeMap<FileName, Vec<u64>>,
    pub(super) visible: BTreeMap<FileName, Vec<u64>>,
    /// Visible positions by sink and incarnation, in the order in which they became visible.
    pub(super) shown: BTreeMap<(String, JobId), Vec<u64>>,
    pub(super) starts: BTreeMap<JobId, Start>,
    /// Incarnations with a recorded stop that is not finished.
    pub(super) stopping: std::collections::BTreeSet<JobId>,
    pub(super) broker: Option<Broker>,
    pub(super) violation: Option<String>,
    pub(super) steps: u64,
    made: u64,
    trace: DefaultHasher,
    print: bool,
}

/// The world, shared by the processes in it.
#[derive(Clone, Debug)]
pub(super) struct Shared(Arc<Mutex<World>>);

impl Shared {
    pub(super) fn new(world: World) -> Self {
        Self(Arc::new(Mutex::new(world)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }
}

impl World {
    pub(super) fn new(seed: u64, print: bool) -> Self {
        let mut dice = Dice::new(seed);
        let with_broker = dice.one_in(2);
        Self {
            dice,
            budget: Budget::default(),
            counts: Counts::default(),
            objects: BTreeMap::new(),
            late: Vec::new(),
            pending: BTreeMap::new(),
            visible: BTreeMap::new(),
            shown: BTreeMap::new(),
            starts: BTreeMap::new(),
            stopping: std::collections::BTreeSet::new(),
            broker: with_broker.then(Broker::default),
            violation: None,
            steps: 0,
            made: 0,
            trace: DefaultHasher::new(),
            print,
        }
    }

    /// Notes what happened: in the trace's hash, and on paper when one history is printed.
    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        let text = what();
        text.hash(&mut self.trace);
        if self.print {
            println!("{:5} {text}", self.steps);
        }
    }

    pub(super) fn trace(&self) -> u64 {
        self.trace.finish()
    }

    pub(super) fn violate(&mut self, what: String) {
        self.note(|| format!("VIOLATION: {what}"));
        self.violation.get_or_insert(what);
    }

    /// A number that was not used before.
    pub(super) fn fresh(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    pub(super) fn attempt(&mut self) -> Attempt {
        let made = self.fresh();
        Attempt(uuid::Uuid::from_u64_pair(self.dice.next(), made))
    }

    /// Uses up one fault of a kind now and then.
    pub(super) fn fault(&mut self, odds: u64, budget: fn(&mut Budget) -> &mut u64) -> bool {
        if *budget(&mut self.budget) == 0 || !self.dice.one_in(odds) {
            return false;
        }
        *budget(&mut self.budget) -= 1;
        true
    }

    /// An object becomes durable.
    pub(super) fn land(&mut self, path: &str, content: &Bytes) {
        self.objects.insert(path.to_owned(), content.clone());
        let Ok(manifest) = envelope::decode(content) else {
            return;
        };
        if manifest.kind == ManifestKind::Start {
            self.remember_start(&manifest);
        }
        // With a broker, the stop is finished when the marker says so.
        if manifest.released && self.broker.is_none() {
            self.stopping.remove(&manifest.job);
        }
    }

    fn remember_start(&mut self, manifest: &Manifest) {
        let closed = manifest.snapshot.replaces.as_ref().and_then(|replaces| replaces.closed.clone());
        let replaced = closed.map(|point| {
            let path = format!("{}/chk-{}/_metadata", point.job, point.slot);
            let position = self.objects.get(&path).and_then(|bytes| envelope::decode(bytes).ok()).map(|old| position_of(&old));
            (point.job, position.unwrap_or(u64::MAX))
        });
        self.starts.insert(manifest.job.clone(), Start { position: position_of(manifest), replaced });
    }

    /// The newest generation of an incarnation.
    pub(super) fn newest_generation(&self, job: &JobId) -> Option<Generation> {
        let folder = format!("{job}/generations/");
        let numbers = self.objects.keys().filter_map(|path| path.strip_prefix(&folder)?.parse().ok().map(Generation));
        numbers.max()
    }

    /// The newest intact entry of an incarnation.
    pub(super) fn newest_entry(&self, job: &JobId) -> Option<Manifest> {
        let folder = format!("{job}/chk-");
        let entries = self.objects.iter().filter(|(path, _)| path.starts_with(&folder));
        entries.filter_map(|(_, content)| envelope::decode(content).ok()).max_by_key(|manifest| manifest.slot)
    }

    pub(super) fn is_closed(&self, job: &JobId) -> bool {
        self.newest_entry(job).is_some_and(|manifest| manifest.forked_by().is_some())
    }

    /// Whether the end of an incarnation is in its log. A superseded run may have put a copy behind it.
    pub(super) fn is_finished(&self, job: &JobId) -> bool {
        let folder = format!("{job}/chk-");
        let entries = self.objects.iter().filter(|(path, _)| path.starts_with(&folder));
        entries.filter_map(|(_, content)| envelope::decode(content).ok()).any(|manifest| manifest.kind == ManifestKind::Final)
    }

    /// The incarnation that counts.
    pub(super) fn newest_incarnation(&self) -> JobId {
        let mut job = super::super::protocol::JobName::new(JOB).unwrap().first_incarnation();
        while let Some(by) = self.newest_entry(&job).and_then(|manifest| manifest.forked_by().cloned()) {
            job = by;
        }
        job
    }

    /// Positions of `job` become visible in `channel` (a sink, or the broker).
    pub(super) fn show(&mut self, channel: &str, job: &JobId, positions: &[u64]) {
        let Some(start) = self.starts.get(job).cloned() else {
            self.violate(format!("{channel}: output of {job} is visible before its manifest 0"));
            return;
        };
        if let Some((child, _)) = self.starts.iter().find(|(child, start)| {
            start.replaced.as_ref().is_some_and(|(old, _)| old == job) && self.shown.contains_key(&(channel.to_owned(), (*child).clone()))
        }) {
            self.violate(format!("{channel}: output of {job} changes after {child} took over and showed its own"));
        }
        let key = (channel.to_owned(), job.clone());
        if let (Some((old, until)), false) = (&start.replaced, self.shown.contains_key(&key)) {
            self.check_replaced(channel, old, *until);
        }
        let shown = self.shown.entry(key).or_default();
        let expected = shown.last().map_or(start.position, |last| last + 1);
        let good = positions.iter().enumerate().all(|(index, position)| *position == expected + index as u64);
        shown.extend(positions);
        if !good {
            self.violate(format!("{channel}: {job} shows {positions:?} where {expected} comes next"));
        }
    }

    /// A fork shows its first output: what it replaced must be visible exactly as far as its manifest 0 says.
    fn check_replaced(&mut self, channel: &str, old: &JobId, until: u64) {
        let begin = self.starts.get(old).map_or(0, |start| start.position);
        let shown = self.shown.get(&(channel.to_owned(), old.clone())).map_or(begin, |shown| shown.last().map_or(begin, |last| last + 1));
        if shown != until {
            self.violate(format!("{channel}: {old} was replaced at position {until}, but shows up to {shown}"));
        }
    }

    /// The position after the last visible one of `job` in `channel`.
    pub(super) fn shown_until(&self, channel: &str, job: &JobId) -> u64 {
        let begin = self.starts.get(job).map_or(0, |start| start.position);
        self.shown.get(&(channel.to_owned(), job.clone())).and_then(|shown| shown.last()).map_or(begin, |last| last + 1)
    }

    pub(super) fn channels(&self) -> Vec<&'static str> {
        let mut channels = SINKS.to_vec();
        if self.broker.is_some() {
            channels.push(super::broker::CHANNEL);
        }
        channels
    }
}

/// The source's position in a manifest.
pub(super) fn position_of(manifest: &Manifest) -> u64 {
    let split = manifest.snapshot.sources.get("source").and_then(|source| source.splits.get("0"));
    split.and_then(|split| split.position.as_u64()).unwrap_or(0)
}

/// Lets the scheduler choose who goes on.
pub(super) fn step() -> impl Future<Output = ()> + Send {
    Step { passed: false }
}

struct Step {
    passed: bool,
}

impl Future for Step {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.passed, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}
