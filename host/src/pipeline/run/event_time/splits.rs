//! The watermarks of one subtask's splits: what the subtask tells of event time, and when. Pure: records and time are passed in.
//!
//! A split's watermark is its greatest timestamp minus the out-of-orderness minus 1 ms, which is Flink's `BoundedOutOfOrdernessWatermarks`:
//! "an out-of-orderness bound B means that once an event with timestamp T was encountered, no events older than T - B will follow any more"
//! (<https://nightlies.apache.org/flink/flink-docs-stable/docs/dev/datastream/event-time/built_in/#fixed-amount-of-lateness>). The least of
//! the splits counts, as in its "watermark strategies and the Kafka connector", and idle ones are left out
//! (<https://nightlies.apache.org/flink/flink-docs-stable/docs/dev/datastream/event-time/generating_watermarks/#dealing-with-idle-sources>).
//!
//! A split holds event time back from the moment that it is there: until its first record, or until it falls idle.

use super::combine::{Activity, EventTime, combine};
use super::{END_OF_TIME, NO_WATERMARK};
use crate::record::Origin;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How watermarks are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct WatermarkSettings {
    /// How much later than a greater one a timestamp may come, in milliseconds.
    pub(super) out_of_orderness_ms: i64,
    /// After how much waiting without a record a split falls idle; none: never.
    pub(super) idle_timeout: Option<Duration>,
    /// The least time between two watermarks.
    pub(super) interval: Duration,
}

#[derive(Debug)]
struct SplitTime {
    id: String,
    greatest: Option<i64>,
    activity: Activity,
    /// On the clock of waiting: its last record, or when it was added.
    last_record: Duration,
    /// Whether it had a record since the last look at all splits.
    moved: bool,
}

/// The watermarks of the splits of one subtask.
#[derive(Debug)]
pub(super) struct SplitWatermarks {
    settings: WatermarkSettings,
    splits: Vec<SplitTime>,
    /// By the number in the job's table.
    places: HashMap<u32, usize>,
    /// How long the subtask has waited for records, all in all. Time in which it could not read because its output was full is no time in which
    /// its splits were idle.
    waited: Duration,
    /// On that clock: no split falls idle before.
    next_idle: Duration,
    /// The greatest watermark told so far.
    told: i64,
    told_idle: bool,
    /// When the next watermark may be told.
    due: Instant,
    /// Whether something was learned since the last look at all splits.
    fresh: bool,
}

impl SplitWatermarks {
    /// No splits yet; `now` is the start.
    pub(super) fn new(settings: WatermarkSettings, now: Instant) -> Self {
        Self {
            settings,
            splits: Vec::new(),
            places: HashMap::new(),
            waited: Duration::ZERO,
            next_idle: Duration::MAX,
            told: NO_WATERMARK,
            told_idle: false,
            due: now,
            fresh: true,
        }
    }

    /// A split is to be read, with the greatest timestamp that a checkpoint knows of it.
    pub(super) fn add(&mut self, id: &str, number: u32, greatest: Option<i64>, now: Instant) {
        self.places.insert(number, self.splits.len());
        let (activity, last_record) = (Activity::Active, self.waited);
        self.splits.push(SplitTime { id: id.to_owned(), greatest, activity, last_record, moved: false });
        self.expect_idle();
        (self.due, self.fresh) = (now, true);
    }

    fn expect_idle(&mut self) {
        if let Some(timeout) = self.settings.idle_timeout {
            self.next_idle = self.next_idle.min(self.waited.saturating_add(timeout));
        }
    }

    /// The subtask has waited for records.
    pub(super) fn waited(&mut self, time: Duration) {
        self.waited = self.waited.saturating_add(time);
    }

    /// Records were read. A watermark that comes back is to be told before them: the subtask was idle, and is active again.
    pub(super) fn observe(&mut self, origins: &[Origin], timestamps: &[i64]) -> Option<EventTime> {
        let mut current: Option<(u32, usize)> = None;
        for (origin, timestamp) in origins.iter().zip(timestamps) {
            let place = match current {
                Some((number, place)) if number == origin.split => place,
                _ => {
                    // A record of no split of this subtask says nothing about their time.
                    let Some(place) = self.places.get(&origin.split).copied() else { continue };
                    current = Some((origin.split, place));
                    self.moved(place);
                    place
                }
            };
            let split = &mut self.splits[place];
            split.greatest = Some(split.greatest.map_or(*timestamp, |greatest| greatest.max(*timestamp)));
        }
        current?;
        self.fresh = true;
        std::mem::take(&mut self.told_idle).then_some(EventTime::Watermark(self.told))
    }

    fn moved(&mut self, place: usize) {
        let split = &mut self.splits[place];
        split.moved = true;
        split.last_record = self.waited;
        if split.activity != Activity::Active {
            split.activity = Activity::Active;
            self.expect_idle();
        }
    }

    /// A split has been read to its end.
    pub(super) fn finished(&mut self, id: &str) {
        if let Some(split) = self.splits.iter_mut().find(|split| split.id == id) {
            split.activity = Activity::Ended;
        }
    }

    /// Whether a split may hold event time back because it has ended: it had no record since the last look.
    pub(super) fn is_any_quiet(&self) -> bool {
        self.splits.iter().any(|split| split.activity == Activity::Active && !split.moved)
    }

    /// Whether [`SplitWatermarks::poll`] may have something to tell.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        (self.fresh && now >= self.due) || self.waited >= self.next_idle
    }

    /// When that is so, if the subtask waits from now on; none: not before the next record. Once for what was learned and not again and again,
    /// since it breaks off a reader that is slow.
    pub(super) fn wake_at(&self, now: Instant) -> Option<Instant> {
        let idle = now.checked_add(self.next_idle.saturating_sub(self.waited));
        idle.into_iter().chain(self.fresh.then_some(self.due)).min()
    }

    /// What is to be told now; to be called until there is nothing more.
    pub(super) fn poll(&mut self, now: Instant) -> Option<EventTime> {
        let fell_idle = self.fall_idle();
        let combined = combine(self.splits.iter().map(|split| (self.watermark_of(split), split.activity)));
        let rises = combined.watermark > self.told;
        let is_due = now >= self.due;
        if is_due {
            (self.due, self.fresh) = (now + self.settings.interval, false);
            self.splits.iter_mut().for_each(|split| split.moved = false);
        }
        if rises && (is_due || fell_idle || combined.idle) {
            self.told = combined.watermark;
            self.told_idle = false;
            return Some(EventTime::Watermark(self.told));
        }
        if combined.idle == self.told_idle {
            return None;
        }
        self.told_idle = combined.idle;
        Some(if combined.idle { EventTime::Idle } else { EventTime::Watermark(self.told) })
    }

    /// True if a split has fallen idle since the last look.
    fn fall_idle(&mut self) -> bool {
        let Some(timeout) = self.settings.idle_timeout.filter(|_| self.waited >= self.next_idle) else { return false };
        let (mut fell_idle, mut next) = (false, Duration::MAX);
        for split in self.splits.iter_mut().filter(|split| split.activity == Activity::Active) {
            let idle_at = split.last_record.saturating_add(timeout);
            if idle_at <= self.waited {
                split.activity = Activity::Idle;
                fell_idle = true;
            } else {
                next = next.min(idle_at);
            }
        }
        self.next_idle = next;
        fell_idle
    }

    fn watermark_of(&self, split: &SplitTime) -> i64 {
        let watermark = |greatest: i64| greatest.saturating_sub(self.settings.out_of_orderness_ms).saturating_sub(1);
        // The end of time is told by the end of the input alone.
        split.greatest.map_or(NO_WATERMARK, watermark).min(END_OF_TIME - 1)
    }

    /// The greatest timestamp of each split that had a record.
    pub(super) fn greatest(&self) -> impl Iterator<Item = (&str, i64)> {
        self.splits.iter().filter_map(|split| Some((split.id.as_str(), split.greatest?)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INTERVAL: Duration = Duration::from_millis(200);
    const TIMEOUT: Duration = Duration::from_secs(60);

    /// The watermarks under test, with a clock of their own: all time is time of waiting.
    struct Lab {
        watermarks: SplitWatermarks,
        now: Instant,
    }

    impl Lab {
        fn new(out_of_orderness_ms: i64, idle_timeout: Option<Duration>, splits: u32) -> Self {
            let now = Instant::now();
            let settings = WatermarkSettings { out_of_orderness_ms, idle_timeout, interval: INTERVAL };
            let mut watermarks = SplitWatermarks::new(settings, now);
            (0..splits).for_each(|number| watermarks.add(&number.to_string(), number, None, now));
            Self { watermarks, now }
        }

        fn read(&mut self, split: u32, timestamps: &[i64]) -> Option<EventTime> {
            let origins = vec![Origin { split, position: 0 }; timestamps.len()];
            self.watermarks.observe(&origins, timestamps)
        }

        fn wait(&mut self, time: Duration) {
            self.now += time;
            self.watermarks.waited(time);
        }

        fn told(&mut self) -> Vec<EventTime> {
            std::iter::from_fn(|| self.watermarks.poll(self.now)).collect()
        }

        /// What is told after the interval.
        fn then(&mut self) -> Vec<EventTime> {
            self.wait(INTERVAL);
            self.told()
        }
    }

    use EventTime::{Idle, Watermark};

    #[test]
    fn a_watermark_lies_so_much_and_a_millisecond_behind_the_greatest_timestamp() {
        let mut lab = Lab::new(5, None, 1);
        lab.read(0, &[100, 90, 99]);
        assert_eq!(lab.told(), [Watermark(94)]);
        lab.read(0, &[95]);
        assert_eq!(lab.then(), []);
    }

    #[test]
    fn the_least_split_counts_and_one_without_a_record_holds_all_back() {
        let mut lab = Lab::new(0, None, 2);
        lab.read(0, &[100]);
        assert_eq!(lab.then(), []);
        lab.read(1, &[50]);
        assert_eq!(lab.then(), [Watermark(49)]);
        lab.watermarks.finished("1");
        assert_eq!(lab.then(), [Watermark(99)]);
    }

    #[test]
    fn a_watermark_is_told_once_an_interval_at_most() {
        let mut lab = Lab::new(0, None, 1);
        lab.read(0, &[10]);
        assert_eq!(lab.told(), [Watermark(9)]);
        lab.read(0, &[20]);
        assert_eq!(lab.told(), []);
        assert_eq!(lab.watermarks.wake_at(lab.now), Some(lab.now + INTERVAL));
        assert_eq!(lab.then(), [Watermark(19)]);
        assert_eq!(lab.watermarks.wake_at(lab.now), None);
    }

    #[test]
    fn an_idle_split_is_left_out_as_soon_as_its_time_is_over() {
        let mut lab = Lab::new(0, Some(TIMEOUT), 2);
        lab.read(0, &[100]);
        lab.wait(TIMEOUT - Duration::from_millis(1));
        lab.read(0, &[200]);
        assert_eq!(lab.told(), []);
        assert_eq!(lab.watermarks.wake_at(lab.now), Some(lab.now + Duration::from_millis(1)));
        lab.wait(Duration::from_millis(1));
        assert!(lab.watermarks.is_due(lab.now));
        assert_eq!(lab.told(), [Watermark(199)]);
    }

    #[test]
    fn a_subtask_falls_idle_with_its_last_split_and_is_active_before_the_next_record() {
        let mut lab = Lab::new(0, Some(TIMEOUT), 2);
        lab.read(0, &[100]);
        lab.read(1, &[50]);
        assert_eq!(lab.told(), [Watermark(49)]);
        lab.wait(TIMEOUT);
        assert_eq!(lab.told(), [Watermark(99), Idle]);
        assert_eq!(lab.then(), [], "it is said once");
        assert_eq!(lab.read(1, &[60]), Some(Watermark(99)), "active again, and event time does not fall");
        assert_eq!(lab.read(1, &[61]), None);
        assert_eq!(lab.then(), [], "split 1 holds event time back");
        lab.read(1, &[200]);
        assert_eq!(lab.then(), [Watermark(199)], "split 0 is still idle");
    }

    #[test]
    fn a_subtask_without_splits_is_idle_until_it_gets_one() {
        let mut lab = Lab::new(0, Some(TIMEOUT), 0);
        assert_eq!(lab.told(), [Idle]);
        lab.watermarks.add("new", 7, None, lab.now);
        assert_eq!(lab.told(), [Watermark(NO_WATERMARK)]);
        lab.wait(TIMEOUT);
        assert_eq!(lab.told(), [Idle]);
        assert_eq!(lab.read(7, &[5]), Some(Watermark(NO_WATERMARK)));
        assert_eq!(lab.then(), [Watermark(4)]);
    }

    #[test]
    fn time_in_which_the_output_was_full_makes_no_split_idle() {
        let mut lab = Lab::new(0, Some(TIMEOUT), 1);
        lab.read(0, &[100]);
        assert_eq!(lab.told(), [Watermark(99)]);
        lab.now += 10 * TIMEOUT;
        assert_eq!(lab.told(), []);
    }

    #[test]
    fn a_restored_split_goes_on_where_it_was() {
        let mut lab = Lab::new(0, None, 1);
        lab.watermarks.add("restored", 1, Some(500), lab.now);
        lab.read(0, &[1000]);
        assert_eq!(lab.told(), [Watermark(499)]);
        assert_eq!(lab.watermarks.greatest().collect::<Vec<_>>(), [("0", 1000), ("restored", 500)]);
    }

    #[test]
    fn the_ends_of_time_are_never_told() {
        let mut lab = Lab::new(1000, None, 1);
        lab.read(0, &[i64::MIN]);
        assert_eq!(lab.told(), []);
        lab.read(0, &[i64::MAX]);
        assert_eq!(lab.then(), [Watermark(i64::MAX - 1001)]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Read { split: u32, timestamp: i64 },
        Wait { millis: u64 },
        Finish { split: u32 },
        Add,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0u32..4, -50i64..1000).prop_map(|(split, timestamp)| Step::Read { split, timestamp }),
            4 => (0u64..2500).prop_map(|millis| Step::Wait { millis }),
            1 => (0u32..4).prop_map(|split| Step::Finish { split }),
            1 => Just(Step::Add),
        ]
    }

    /// What a split is known to be, in the words of the rules alone.
    #[derive(Clone, Debug)]
    struct Known {
        greatest: Option<i64>,
        last_record: Duration,
        finished: bool,
    }

    proptest! {
        /// Whatever the interleaving: event time is the least of the splits that are neither idle nor finished, and never falls.
        #[test]
        fn event_time_is_the_least_of_the_splits_that_count_and_never_falls(
            steps in prop::collection::vec(step(), 1..80), bound in 0i64..20, with_timeout: bool
        ) {
            let timeout = Duration::from_secs(1);
            let mut lab = Lab::new(bound, with_timeout.then_some(timeout), 2);
            let start = lab.now;
            let mut known = vec![Known { greatest: None, last_record: Duration::ZERO, finished: false }; 2];
            let (mut greatest_told, mut idle) = (NO_WATERMARK, false);
            for step in steps {
                let mut told = Vec::new();
                match step {
                    Step::Read { split, timestamp } => {
                        let Some(split_known) = known.get_mut(split as usize).filter(|known| !known.finished) else { continue };
                        split_known.greatest = split_known.greatest.max(Some(timestamp));
                        split_known.last_record = lab.now - start;
                        told.extend(lab.read(split, &[timestamp]));
                        prop_assert_eq!(told.is_empty(), !idle, "activity is told before the records, and only then");
                    }
                    Step::Wait { millis } => lab.wait(Duration::from_millis(millis)),
                    Step::Finish { split } => {
                        let Some(split_known) = known.get_mut(split as usize) else { continue };
                        split_known.finished = true;
                        lab.watermarks.finished(&split.to_string());
                    }
                    Step::Add => {
                        let number = u32::try_from(known.len()).unwrap();
                        known.push(Known { greatest: None, last_record: lab.now - start, finished: false });
                        lab.watermarks.add(&number.to_string(), number, None, lab.now);
                    }
                }
                told.extend(lab.then());
                for told in told {
                    match told {
                        Watermark(watermark) => {
                            prop_assert!(watermark >= greatest_told);
                            (greatest_told, idle) = (watermark, false);
                        }
                        Idle => idle = true,
                    }
                }
                let watermark = |known: &Known| known.greatest.map_or(NO_WATERMARK, |greatest| greatest - bound - 1);
                let is_idle = |known: &Known| with_timeout && lab.now - start >= known.last_record + timeout;
                let counts = |known: &&Known| !known.finished && !is_idle(known);
                let least = known.iter().filter(counts).map(watermark).min();
                prop_assert_eq!(idle, least.is_none());
                let greatest = known.iter().map(watermark).max().unwrap();
                prop_assert!(greatest_told >= least.unwrap_or(greatest), "{:?} {:?}", greatest_told, least);
                prop_assert!(greatest_told <= greatest);
            }
        }
    }
}
