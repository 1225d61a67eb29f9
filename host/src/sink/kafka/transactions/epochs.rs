//! Where the transactions of a run stand: which producer is written to, who waits with a barrier, what is being committed. Nothing here
//! talks to anybody, so that every order of events can be tried.
//!
//! ```text
//! writing ─▶ some writers wait with barrier N ─▶ all do ─▶ ending: the marker is sent ─▶ ended: to be committed
//!    ▲                    │ given up                 │ given up               the others write with the other producer
//!    └────────────────────┴──────────────────────────┘ (the same transaction goes on)
//! ```

use crate::checkpoint::participants::LastResourceError;
use crate::checkpoint::protocol::Attempt;
use crate::sink::GiveUp;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Why the transactions of a run can only be recovered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// Another producer took over, or the transaction timed out.
    Fenced(String),
    /// What is in the transactions is replayed.
    Lost(String),
    /// A permission or a setting.
    Refused(String),
}

impl From<Loss> for LastResourceError {
    fn from(loss: Loss) -> Self {
        match loss {
            Loss::Fenced(reason) => Self::Fenced(reason),
            Loss::Lost(reason) => Self::Lost(reason),
            Loss::Refused(reason) => Self::Refused(reason),
        }
    }
}

/// What a writer that has met a barrier has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Wait for the outcome: others are missing.
    Wait,
    /// End the epoch, then wait for the outcome: all are there.
    Last,
    /// Go on: the checkpoint was given up.
    GivenUp,
}

/// What came of a barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing yet.
    Pending,
    /// Its epoch has ended: writers go on with the next one.
    Ended,
    /// It was given up: writers go on in the same transaction.
    GivenUp,
}

/// A barrier that some writers wait with.
#[derive(Clone, Copy, Debug)]
struct Barrier {
    attempt: Attempt,
    arrived: usize,
    since: Instant,
    /// The marker is on its way: there is no going back.
    ending: bool,
}

/// A transaction that has its marker.
#[derive(Clone, Copy, Debug)]
struct Ended {
    attempt: Attempt,
    producer: usize,
    began: Instant,
    committed: bool,
}

/// The epochs of one run.
#[derive(Debug)]
pub(super) struct Epochs {
    writers: usize,
    /// The producer that is written to: 0 or 1.
    current: usize,
    began: Instant,
    barrier: Option<Barrier>,
    ended: Option<Ended>,
    /// Barriers of these may still be on their way to some writers.
    given_up: HashSet<Attempt>,
    loss: Option<Loss>,
    /// How long the first writer waited for the last one, at the last barrier that all brought.
    waited: Option<Duration>,
}

impl Epochs {
    /// A run whose first transaction is open on a producer.
    pub(super) fn new(writers: usize, producer: usize, now: Instant) -> Self {
        Self { writers, current: producer, began: now, barrier: None, ended: None, given_up: HashSet::new(), loss: None, waited: None }
    }

    /// The producer that is written to.
    ///
    /// # Errors
    /// The transactions are lost.
    pub(super) fn current(&self) -> Result<usize, Loss> {
        self.intact().map(|()| self.current)
    }

    fn intact(&self) -> Result<(), Loss> {
        self.loss.clone().map_or(Ok(()), Err)
    }

    /// A writer has met a barrier.
    ///
    /// # Errors
    /// The transactions are lost, or a barrier comes that nobody may have sent.
    pub(super) fn arrive(&mut self, attempt: Attempt, now: Instant) -> Result<Arrival, Loss> {
        self.intact()?;
        if self.given_up.contains(&attempt) {
            return Ok(Arrival::GivenUp);
        }
        let barrier = self.barrier.get_or_insert(Barrier { attempt, arrived: 0, since: now, ending: false });
        if barrier.attempt != attempt || self.ended.is_some_and(|ended| ended.attempt == attempt) {
            let other = barrier.attempt;
            return Err(self
                .lose(Loss::Lost(format!("a writer brought the barrier of checkpoint attempt {attempt} while others wait with {other}"))));
        }
        barrier.arrived += 1;
        if barrier.arrived < self.writers {
            return Ok(Arrival::Wait);
        }
        self.waited = Some(now.saturating_duration_since(barrier.since));
        Ok(Arrival::Last)
    }

    /// Whether the epoch of a barrier may still end: it was neither given up nor lost. Asked while it is drained.
    pub(super) fn may_end(&self, attempt: Attempt) -> bool {
        self.loss.is_none() && self.barrier.is_some_and(|barrier| barrier.attempt == attempt)
    }

    /// The point of no return: all records of the epoch are delivered, and its marker is about to be sent. False: it was given up.
    ///
    /// # Errors
    /// The transactions are lost, or the epoch before has not been committed.
    pub(super) fn end(&mut self, attempt: Attempt) -> Result<bool, Loss> {
        self.intact()?;
        let Some(barrier) = self.barrier.as_mut().filter(|barrier| barrier.attempt == attempt) else { return Ok(false) };
        if let Some(before) = self.ended.filter(|ended| !ended.committed) {
            let sentence = format!("checkpoint attempt {attempt} ends before attempt {} is committed", before.attempt);
            return Err(self.lose(Loss::Lost(sentence)));
        }
        barrier.ending = true;
        Ok(true)
    }

    /// The marker is in the transaction, and the next one is open on the other producer. Nothing if the transactions were lost meanwhile.
    pub(super) fn switch(&mut self, attempt: Attempt, now: Instant) {
        if self.loss.is_some() || self.barrier.take_if(|barrier| barrier.attempt == attempt && barrier.ending).is_none() {
            return;
        }
        self.ended = Some(Ended { attempt, producer: self.current, began: self.began, committed: false });
        self.current = 1 - self.current;
        self.began = now;
        // Barriers reach a writer in their order, so nobody waits for an earlier one any more.
        self.given_up.clear();
    }

    /// What came of a barrier that a writer waits with.
    ///
    /// # Errors
    /// The transactions are lost.
    pub(super) fn outcome(&self, attempt: Attempt) -> Result<Outcome, Loss> {
        self.intact()?;
        Ok(if self.ended.is_some_and(|ended| ended.attempt == attempt) {
            Outcome::Ended
        } else if self.barrier.is_some_and(|barrier| barrier.attempt == attempt) {
            Outcome::Pending
        } else {
            Outcome::GivenUp
        })
    }

    /// Gives a checkpoint up, unless its epoch is ending or has ended: then it can be committed until its transaction is `lifetime` old.
    pub(super) fn give_up(&mut self, attempt: Attempt, lifetime: Duration) -> GiveUp {
        if let Some(ended) = self.ended.filter(|ended| ended.attempt == attempt) {
            return GiveUp::TooLate(ended.began + lifetime);
        }
        if let Some(barrier) = self.barrier.filter(|barrier| barrier.attempt == attempt) {
            if barrier.ending {
                return GiveUp::TooLate(self.began + lifetime);
            }
            self.barrier = None;
        }
        self.given_up.insert(attempt);
        GiveUp::GivenUp
    }

    /// The producer whose transaction has the marker of a checkpoint; none when it is committed already.
    ///
    /// # Errors
    /// The transactions are lost, or there is no such one.
    pub(super) fn to_commit(&self, attempt: Attempt) -> Result<Option<usize>, Loss> {
        match self.ended.filter(|ended| ended.attempt == attempt) {
            Some(ended) if ended.committed => Ok(None),
            Some(ended) => self.intact().map(|()| Some(ended.producer)),
            None => self.intact().and_then(|()| Err(Loss::Lost(format!("there is no transaction of checkpoint attempt {attempt}")))),
        }
    }

    /// The transaction of a checkpoint was committed.
    pub(super) fn committed(&mut self, attempt: Attempt) {
        if let Some(ended) = self.ended.as_mut().filter(|ended| ended.attempt == attempt) {
            ended.committed = true;
        }
    }

    /// The transactions are lost; the first reason counts.
    pub(super) fn lose(&mut self, loss: Loss) -> Loss {
        self.loss.get_or_insert(loss).clone()
    }

    /// Why they are lost, if they are.
    pub(super) fn loss(&self) -> Option<&Loss> {
        self.loss.as_ref()
    }

    /// When the oldest open transaction began.
    pub(super) fn oldest(&self) -> Instant {
        self.ended.filter(|ended| !ended.committed).map_or(self.began, |ended| ended.began)
    }

    /// How long the first writer waited for the last one, at the last barrier that all brought.
    pub(super) fn waited(&self) -> Option<Duration> {
        self.waited
    }

    /// How many writers wait with a barrier.
    pub(super) fn waiting(&self) -> usize {
        self.barrier.map_or(0, |barrier| barrier.arrived)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(100);

    fn two_writers() -> (Epochs, Instant) {
        let now = Instant::now();
        (Epochs::new(2, 0, now), now)
    }

    /// Brings the barrier of a checkpoint to both writers and ends its epoch.
    fn end(epochs: &mut Epochs, attempt: Attempt, now: Instant) {
        assert_eq!(epochs.arrive(attempt, now), Ok(Arrival::Wait));
        assert_eq!(epochs.arrive(attempt, now), Ok(Arrival::Last));
        assert_eq!(epochs.end(attempt), Ok(true));
        epochs.switch(attempt, now);
    }

    #[test]
    fn an_epoch_ends_when_all_writers_have_its_barrier() {
        let (mut epochs, now) = two_writers();
        let attempt = Attempt::random();
        assert_eq!(epochs.arrive(attempt, now), Ok(Arrival::Wait));
        assert_eq!((epochs.outcome(attempt), epochs.waiting(), epochs.current()), (Ok(Outcome::Pending), 1, Ok(0)));
        let later = now + Duration::from_millis(7);
        assert_eq!(epochs.arrive(attempt, later), Ok(Arrival::Last));
        assert_eq!(epochs.waited(), Some(Duration::from_millis(7)));
        assert!(epochs.may_end(attempt));
        assert_eq!(epochs.end(attempt), Ok(true));
        assert_eq!(epochs.outcome(attempt), Ok(Outcome::Pending));
        epochs.switch(attempt, later);
        assert_eq!((epochs.outcome(attempt), epochs.waiting(), epochs.current()), (Ok(Outcome::Ended), 0, Ok(1)));
        assert_eq!((epochs.to_commit(attempt), epochs.oldest()), (Ok(Some(0)), now));
        epochs.committed(attempt);
        assert_eq!((epochs.to_commit(attempt), epochs.oldest()), (Ok(None), later));
    }

    #[test]
    fn producers_take_turns() {
        let (mut epochs, now) = two_writers();
        for producer in [0, 1, 0, 1] {
            let attempt = Attempt::random();
            assert_eq!(epochs.current(), Ok(producer));
            end(&mut epochs, attempt, now);
            assert_eq!(epochs.to_commit(attempt), Ok(Some(producer)));
            epochs.committed(attempt);
        }
    }

    #[test]
    fn a_checkpoint_given_up_before_its_end_goes_on_in_the_same_transaction() {
        let (mut epochs, now) = two_writers();
        let (first, second) = (Attempt::random(), Attempt::random());
        epochs.arrive(first, now).unwrap();
        assert_eq!(epochs.give_up(first, LIFETIME), GiveUp::GivenUp);
        assert_eq!((epochs.outcome(first), epochs.waiting()), (Ok(Outcome::GivenUp), 0));
        // Its barrier reaches the other writer only now, behind the decision.
        assert_eq!(epochs.arrive(first, now), Ok(Arrival::GivenUp));
        assert_eq!((epochs.current(), epochs.oldest()), (Ok(0), now));
        end(&mut epochs, second, now);
        assert_eq!((epochs.to_commit(second), epochs.current()), (Ok(Some(0)), Ok(1)));
    }

    #[test]
    fn a_checkpoint_given_up_before_any_barrier_came_is_passed_by_all() {
        let (mut epochs, now) = two_writers();
        let attempt = Attempt::random();
        assert_eq!(epochs.give_up(attempt, LIFETIME), GiveUp::GivenUp);
        assert_eq!(epochs.arrive(attempt, now), Ok(Arrival::GivenUp));
        assert_eq!(epochs.arrive(attempt, now), Ok(Arrival::GivenUp));
        assert_eq!(epochs.current(), Ok(0));
    }

    #[test]
    fn a_checkpoint_given_up_while_its_epoch_is_drained_sends_no_marker() {
        let (mut epochs, now) = two_writers();
        let attempt = Attempt::random();
        epochs.arrive(attempt, now).unwrap();
        assert_eq!(epochs.arrive(attempt, now), Ok(Arrival::Last));
        assert_eq!(epochs.give_up(attempt, LIFETIME), GiveUp::GivenUp);
        assert!(!epochs.may_end(attempt));
        assert_eq!(epochs.end(attempt), Ok(false));
        epochs.switch(attempt, now);
        assert_eq!(epochs.current(), Ok(0));
        assert!(epochs.to_commit(attempt).is_err());
    }

    #[test]
    fn it_is_too_late_once_the_marker_is_on_its_way() {
        let (mut epochs, now) = two_writers();
        let attempt = Attempt::random();
        epochs.arrive(attempt, now).unwrap();
        epochs.arrive(attempt, now).unwrap();
        epochs.end(attempt).unwrap();
        let later = now + Duration::from_secs(1);
        assert_eq!(epochs.give_up(attempt, LIFETIME), GiveUp::TooLate(now + LIFETIME));
        epochs.switch(attempt, later);
        assert_eq!(epochs.give_up(attempt, LIFETIME), GiveUp::TooLate(now + LIFETIME));
        assert_eq!(epochs.to_commit(attempt), Ok(Some(0)));
    }

    #[test]
    fn the_next_epoch_waits_for_the_commit_of_the_one_before() {
        let (mut epochs, now) = two_writers();
        end(&mut epochs, Attempt::random(), now);
        let next = Attempt::random();
        epochs.arrive(next, now).unwrap();
        epochs.arrive(next, now).unwrap();
        assert!(matches!(epochs.end(next), Err(Loss::Lost(_))));
        assert!(epochs.current().is_err());
    }

    #[test]
    fn what_is_lost_stays_lost_for_the_first_reason() {
        let (mut epochs, now) = two_writers();
        let (waiting, ended) = (Attempt::random(), Attempt::random());
        end(&mut epochs, ended, now);
        epochs.committed(ended);
        epochs.arrive(waiting, now).unwrap();
        let fenced = Loss::Fenced("a".to_owned());
        assert_eq!(epochs.lose(fenced.clone()), fenced);
        assert_eq!(epochs.lose(Loss::Lost("b".to_owned())), fenced);
        assert_eq!(epochs.arrive(waiting, now), Err(fenced.clone()));
        assert_eq!(epochs.outcome(waiting), Err(fenced.clone()));
        assert_eq!(epochs.current(), Err(fenced.clone()));
        // What was committed before stays committed.
        assert_eq!(epochs.to_commit(ended), Ok(None));
        assert_eq!(epochs.to_commit(waiting), Err(fenced));
    }

    #[test]
    fn a_barrier_that_overtakes_another_one_is_noticed() {
        let (mut epochs, now) = two_writers();
        epochs.arrive(Attempt::random(), now).unwrap();
        assert!(matches!(epochs.arrive(Attempt::random(), now), Err(Loss::Lost(_))));
    }

    #[test]
    fn a_commit_of_an_unknown_checkpoint_is_lost() {
        let (epochs, _) = two_writers();
        assert!(matches!(epochs.to_commit(Attempt::random()), Err(Loss::Lost(_))));
    }
}
