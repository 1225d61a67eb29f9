//! The channel between two subtasks, and the gate through which a task reads all of its channels.
//!
//! One channel for each pair of subtasks, bounded in batches: a full one makes the sender wait, which is back-pressure. Barriers and what
//! else steers the task count for nothing, so that a checkpoint never waits for room.

use crate::checkpoint::protocol::Attempt;
use crate::record::Batch;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;

/// Batches that a channel holds at most: enough that neither side waits for the other's wake-up, few enough that a barrier is soon through.
pub(super) const CHANNEL_BATCHES: usize = 8;

/// A checkpoint on its way through the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Barrier {
    /// Counts the checkpoints that this run began, given up ones too.
    pub(super) sequence: u64,
    /// The slot of the log that the checkpoint is to take.
    pub(super) checkpoint: u64,
    /// Identifies the attempt.
    pub(super) attempt: Attempt,
    /// Whether sources stop reading behind it.
    pub(super) last: bool,
    /// When the coordinator sent it.
    pub(super) triggered: Instant,
}

/// What flows through a channel.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "almost all elements are batches: a box would be an allocation for each")]
pub(super) enum Element {
    /// Records.
    Batch(Batch),
    /// No record with an earlier or equal event time follows; milliseconds since the Unix epoch. The channel is active.
    Watermark(i64),
    /// No record is expected for now: event time goes on without this channel, until its next watermark.
    Idle,
    /// A checkpoint's barrier: what came before it is part of the checkpoint, what comes after is not.
    Barrier(Barrier),
    /// No record follows; barriers still do.
    End,
}

#[derive(Debug)]
struct Channel {
    state: Mutex<State>,
    room: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// What overtakes: the barriers that were given up.
    control: VecDeque<u64>,
    queue: VecDeque<Element>,
    batches: usize,
    closed: bool,
}

impl Channel {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The other end of a channel is gone: the task there has failed, and this one is about to be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the task at the other end of a channel has ended")]
pub(super) struct Disconnected;

/// The sending end.
#[derive(Debug)]
pub(super) struct Sender {
    channel: Arc<Channel>,
    gate: Arc<Notify>,
}

impl Sender {
    /// Appends an element; waits for room before a batch. Cancel-safe: a send that was dropped has sent nothing.
    pub(super) async fn send(&self, element: Element) -> Result<(), Disconnected> {
        let mut element = Some(element);
        loop {
            // The wait is registered before the look, so that room made in between is not missed.
            let room = self.channel.room.notified();
            {
                let mut state = self.channel.lock();
                if state.closed {
                    return Err(Disconnected);
                }
                let is_batch = matches!(element, Some(Element::Batch(_)));
                if !is_batch || state.batches < CHANNEL_BATCHES {
                    state.batches += usize::from(is_batch);
                    state.queue.extend(element.take());
                    break;
                }
            }
            room.await;
        }
        self.gate.notify_one();
        Ok(())
    }

    /// Tells the receiver, ahead of all that waits in the channel, that a checkpoint was given up.
    pub(super) fn give_up(&self, sequence: u64) {
        self.channel.lock().control.push_back(sequence);
        self.gate.notify_one();
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.channel.lock().closed = true;
        self.gate.notify_one();
    }
}

/// What a task finds at its gate.
#[derive(Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "almost all arrivals are batches: a box would be an allocation for each")]
pub(super) enum Arrival {
    /// An element of a channel.
    Element(usize, Element),
    /// A checkpoint was given up.
    GivenUp(u64),
}

/// The receiving ends of all channels of a task. Reads them in turn, except those that are held back.
#[derive(Debug, Default)]
pub(super) struct Gate {
    channels: Vec<Arc<Channel>>,
    held: Vec<bool>,
    wake: Arc<Notify>,
    turn: usize,
}

impl Gate {
    /// Opens one more channel, which gets the next number.
    pub(super) fn open(&mut self) -> Sender {
        let channel = Arc::new(Channel { state: Mutex::default(), room: Notify::new() });
        self.channels.push(Arc::clone(&channel));
        self.held.push(false);
        Sender { channel, gate: Arc::clone(&self.wake) }
    }

    /// The number of channels.
    pub(super) fn len(&self) -> usize {
        self.channels.len()
    }

    /// Holds a channel back: what it delivers waits.
    pub(super) fn hold(&mut self, channel: usize) {
        self.held[channel] = true;
    }

    /// Reads all channels again.
    pub(super) fn release_all(&mut self) {
        self.held.fill(false);
    }

    /// The next element if one is there.
    pub(super) fn try_next(&mut self) -> Result<Option<Arrival>, Disconnected> {
        for step in 0..self.channels.len() {
            let index = (self.turn + step) % self.channels.len();
            let channel = &self.channels[index];
            let mut state = channel.lock();
            if let Some(sequence) = state.control.pop_front() {
                return Ok(Some(Arrival::GivenUp(sequence)));
            }
            if self.held[index] {
                continue;
            }
            if let Some(element) = state.queue.pop_front() {
                if matches!(element, Element::Batch(_)) {
                    state.batches -= 1;
                    channel.room.notify_one();
                }
                drop(state);
                self.turn = index + 1;
                return Ok(Some(Arrival::Element(index, element)));
            }
            if state.closed {
                return Err(Disconnected);
            }
        }
        Ok(None)
    }

    /// Waits for the next element. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Arrival, Disconnected> {
        loop {
            if let Some(arrival) = self.try_next()? {
                return Ok(arrival);
            }
            // A permit that was given since the look is kept by `notify_one`.
            self.wake.notified().await;
        }
    }

    /// What waits in a channel, oldest first.
    #[cfg(test)]
    pub(super) fn contents(&self, channel: usize) -> Vec<Element> {
        self.channels[channel].lock().queue.iter().cloned().collect()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        for channel in &self.channels {
            channel.lock().closed = true;
            channel.room.notify_waiters();
            channel.room.notify_one();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn batch() -> Element {
        Element::Batch(Batch::default())
    }

    fn barrier() -> Element {
        Element::Barrier(Barrier { sequence: 1, checkpoint: 1, attempt: Attempt::default(), last: false, triggered: Instant::now() })
    }

    #[tokio::test]
    async fn a_full_channel_makes_the_sender_wait_but_not_a_barrier() {
        let mut gate = Gate::default();
        let sender = gate.open();
        for _ in 0..CHANNEL_BATCHES {
            sender.send(batch()).now_or_never().unwrap().unwrap();
        }
        assert!(sender.send(batch()).now_or_never().is_none());
        sender.send(barrier()).now_or_never().unwrap().unwrap();
        assert_eq!(gate.contents(0).len(), CHANNEL_BATCHES + 1);
        gate.next().await.unwrap();
        sender.send(batch()).now_or_never().unwrap().unwrap();
    }

    #[tokio::test]
    async fn what_was_given_up_overtakes_and_passes_a_channel_held_back() {
        let mut gate = Gate::default();
        let (first, second) = (gate.open(), gate.open());
        first.send(batch()).await.unwrap();
        gate.hold(0);
        assert!(gate.next().now_or_never().is_none());
        second.send(Element::End).await.unwrap();
        assert_eq!(gate.next().await.unwrap(), Arrival::Element(1, Element::End));
        first.give_up(7);
        assert_eq!(gate.next().await.unwrap(), Arrival::GivenUp(7));
        gate.release_all();
        assert_eq!(gate.next().await.unwrap(), Arrival::Element(0, batch()));
    }

    #[tokio::test]
    async fn a_lost_end_is_noticed_on_both_sides() {
        let mut gate = Gate::default();
        let sender = gate.open();
        drop(sender);
        assert_eq!(gate.next().await, Err(Disconnected));
        let sender = gate.open();
        drop(gate);
        assert_eq!(sender.send(batch()).await, Err(Disconnected));
    }
}
