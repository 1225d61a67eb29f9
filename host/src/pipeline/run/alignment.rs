//! Alignment: when a task that reads several channels has received a checkpoint's barrier. Pure: the task carries out what is decided.

use super::channel::Barrier;

/// Whether channels that delivered a barrier wait for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// They wait, so that the snapshot holds exactly what came before the barrier.
    ExactlyOnce,
    /// They do not; what they deliver meanwhile is in the snapshot and is read again after a crash.
    AtLeastOnce,
}

/// What a task has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Hold the channel back that delivered the barrier, where `hold` says so; other channels' barriers are still to come.
    Wait { hold: bool },
    /// All channels have delivered the barrier: release them, take the snapshot, pass the barrier on.
    Complete(Barrier),
    /// The barrier belongs to a checkpoint that was given up: drop it.
    Stale,
}

/// The barriers of one task's channels.
#[derive(Debug)]
pub(super) struct Alignment {
    mode: Mode,
    /// The checkpoint being aligned.
    current: Option<Barrier>,
    /// Which channels have delivered its barrier.
    arrived: Vec<bool>,
    /// Checkpoints up to this one are over: passed on or given up.
    over: u64,
    /// Checkpoints up to this one are known to be given up or over.
    given_up: u64,
}

impl Alignment {
    /// For a task of `channels` channels.
    pub(super) fn new(mode: Mode, channels: usize) -> Self {
        Self { mode, current: None, arrived: vec![false; channels], over: 0, given_up: 0 }
    }

    /// A channel delivered a barrier. A newer checkpoint's barrier says that the one being aligned was given up.
    pub(super) fn barrier(&mut self, channel: usize, barrier: Barrier) -> Step {
        if barrier.sequence <= self.over {
            return Step::Stale;
        }
        if self.current.is_none_or(|current| current.sequence < barrier.sequence) {
            self.current = Some(barrier);
            self.arrived.fill(false);
        }
        self.arrived[channel] = true;
        if !self.arrived.iter().all(|arrived| *arrived) {
            return Step::Wait { hold: self.mode == Mode::ExactlyOnce };
        }
        self.current = None;
        self.over = barrier.sequence;
        Step::Complete(barrier)
    }

    /// A checkpoint was given up. True for the first channel to say so: the task then passes it on, also where it has passed the barrier on
    /// already, since others behind it may still align.
    pub(super) fn given_up(&mut self, sequence: u64) -> bool {
        if self.given_up >= sequence {
            return false;
        }
        self.given_up = sequence;
        self.over = self.over.max(sequence);
        if self.current.is_some_and(|current| current.sequence <= sequence) {
            self.current = None;
        }
        true
    }

    /// Whether a checkpoint is being aligned: otherwise no channel is to be held back.
    pub(super) fn is_aligning(&self) -> bool {
        self.current.is_some()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::checkpoint::protocol::Attempt;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn barrier(sequence: u64) -> Barrier {
        static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
        Barrier { sequence, checkpoint: sequence, attempt: Attempt::default(), last: false, triggered: *START }
    }

    /// Feeds channels of numbered records and barriers in the order of `choices`, holding channels back as told. Returns for each
    /// checkpoint the records that were read before it.
    fn read(mode: Mode, channels: usize, barriers: u64, choices: &[usize]) -> Vec<Vec<(usize, u64)>> {
        let mut queues: Vec<VecDeque<Option<u64>>> =
            (0..channels).map(|_| (1..=barriers).flat_map(|number| [Some(number), None]).collect()).collect();
        let (mut held, mut seen, mut cuts) = (vec![false; channels], Vec::new(), Vec::new());
        let mut next = vec![0; channels];
        let mut alignment = Alignment::new(mode, channels);
        let mut choices = choices.iter().copied().cycle();
        while queues.iter().any(|queue| !queue.is_empty()) {
            let channel = choices.next().unwrap() % channels;
            let channel = (channel..channels).chain(0..channel).find(|at| !held[*at] && !queues[*at].is_empty()).unwrap();
            match queues[channel].pop_front().unwrap() {
                Some(number) => seen.push((channel, number)),
                None => {
                    next[channel] += 1;
                    match alignment.barrier(channel, barrier(next[channel])) {
                        Step::Wait { hold } => held[channel] = hold,
                        Step::Complete(_) => {
                            held.fill(false);
                            cuts.push(seen.clone());
                        }
                        Step::Stale => unreachable!("no checkpoint was given up"),
                    }
                }
            }
        }
        cuts
    }

    proptest! {
        #[test]
        fn an_exactly_once_cut_holds_what_came_before_the_barriers(
            channels in 1usize..=3, barriers in 1u64..5, choices in prop::collection::vec(0usize..3, 1..64)
        ) {
            let cuts = read(Mode::ExactlyOnce, channels, barriers, &choices);
            prop_assert_eq!(cuts.len() as u64, barriers);
            for (number, cut) in (1..).zip(cuts) {
                let mut cut = cut;
                cut.sort_unstable();
                let expected: Vec<_> = (0..channels).flat_map(|channel| (1..=number).map(move |record| (channel, record))).collect();
                prop_assert_eq!(cut, expected);
            }
        }
    }

    #[test]
    fn at_least_once_holds_nothing_back_and_waits_for_the_last() {
        let mut alignment = Alignment::new(Mode::AtLeastOnce, 2);
        assert_eq!(alignment.barrier(0, barrier(1)), Step::Wait { hold: false });
        assert_eq!(alignment.barrier(1, barrier(1)), Step::Complete(barrier(1)));
    }

    #[test]
    fn a_given_up_checkpoint_releases_and_its_late_barriers_are_dropped() {
        let mut alignment = Alignment::new(Mode::ExactlyOnce, 2);
        assert_eq!(alignment.barrier(0, barrier(1)), Step::Wait { hold: true });
        assert!(alignment.given_up(1) && !alignment.given_up(1) && !alignment.is_aligning());
        assert_eq!(alignment.barrier(1, barrier(1)), Step::Stale);
        assert_eq!(alignment.barrier(1, barrier(2)), Step::Wait { hold: true });
        assert_eq!(alignment.barrier(0, barrier(2)), Step::Complete(barrier(2)));
        assert!(alignment.given_up(2), "others behind may still align");
    }
}
