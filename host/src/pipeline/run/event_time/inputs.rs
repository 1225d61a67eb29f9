//! Event time of a task behind others: what its channels say, combined. Pure.

use super::NO_WATERMARK;
use super::combine::{Activity, EventTime, combine};

/// What the channels of a task have said of event time.
#[derive(Debug)]
pub(in crate::pipeline::run) struct Inputs {
    channels: Vec<(i64, Activity)>,
    open: usize,
}

impl Inputs {
    /// For so many channels.
    pub(in crate::pipeline::run) fn new(channels: usize) -> Self {
        Self { channels: vec![(NO_WATERMARK, Activity::Active); channels], open: channels }
    }

    /// A channel has said something: what is to be told further on, in this order. Idle and ended channels are left out of the least; a channel
    /// is active again with its next watermark.
    pub(in crate::pipeline::run) fn told(&mut self, channel: usize, told: EventTime) -> [Option<EventTime>; 2] {
        let (watermark, activity) = &mut self.channels[channel];
        match told {
            EventTime::Watermark(told) => (*watermark, *activity) = (told.max(*watermark), Activity::Active),
            EventTime::Idle => *activity = Activity::Idle,
        }
        self.combined()
    }

    /// A channel has ended. None for the last one.
    pub(in crate::pipeline::run) fn ended(&mut self, channel: usize) -> Option<[Option<EventTime>; 2]> {
        let (_, activity) = &mut self.channels[channel];
        if *activity != Activity::Ended {
            *activity = Activity::Ended;
            self.open -= 1;
        }
        (self.open > 0).then(|| self.combined())
    }

    fn combined(&self) -> [Option<EventTime>; 2] {
        let combined = combine(self.channels.iter().copied());
        [Some(EventTime::Watermark(combined.watermark)), combined.idle.then_some(EventTime::Idle)]
    }
}

#[cfg(test)]
mod tests {
    use super::EventTime::{Idle, Watermark};
    use super::*;

    #[test]
    fn idle_and_ended_channels_hold_nothing_back() {
        let mut inputs = Inputs::new(3);
        let active = |watermark| [Some(Watermark(watermark)), None];
        assert_eq!(inputs.told(0, Watermark(10)), active(NO_WATERMARK));
        assert_eq!(inputs.told(1, Watermark(20)), active(NO_WATERMARK));
        assert_eq!(inputs.told(2, Idle), active(10));
        assert_eq!(inputs.ended(0), Some(active(20)));
        assert_eq!(inputs.told(1, Idle), [Some(Watermark(20)), Some(Idle)]);
        assert_eq!(inputs.told(2, Watermark(5)), active(5), "it is active again, and whoever is told never goes back");
        assert_eq!(inputs.ended(2), Some([Some(Watermark(20)), Some(Idle)]));
        assert_eq!(inputs.ended(1), None);
    }
}
