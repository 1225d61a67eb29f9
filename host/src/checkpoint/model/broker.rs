//! A simulated broker with two transactional ids and a marker: the last resource.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use async_trait::async_trait;

use super::super::participants::{LastResource, LastResourceError};
use super::super::protocol::{Attempt, JobId, Marker, MarkerState};
use super::world::{Late, Shared, World, step};

/// What the broker's output is called in messages.
pub(super) const CHANNEL: &str = "broker";

/// One transaction.
#[derive(Clone, Debug, Default)]
pub(super) struct Transaction {
    job: Option<JobId>,
    positions: Vec<u64>,
    marker: Option<Marker>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct TransactionalId {
    pub(super) epoch: u64,
    pub(super) open: Option<Transaction>,
}

/// A transaction that will be visible, whatever happens.
#[derive(Clone, Debug)]
struct Committed {
    id: usize,
    transaction: Transaction,
    /// Its commit markers are written. A reader sees it once that is so for all before it, too.
    completed: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Broker {
    pub(super) ids: [TransactionalId; 2],
    pub(super) marker: Option<Marker>,
    /// What is committed and not visible yet, in the order of the partition.
    hidden: VecDeque<Committed>,
}

impl World {
    fn broker(&mut self) -> &mut Broker {
        self.broker.as_mut().unwrap()
    }

    /// The broker commits what is open on an id; unless it is slow, readers see it.
    pub(super) fn end_transaction(&mut self, id: usize, epoch: u64, slowly: bool) {
        if self.broker().ids[id].epoch != epoch {
            return;
        }
        if let Some(transaction) = self.broker().ids[id].open.take() {
            self.broker().hidden.push_back(Committed { id, transaction, completed: false });
        }
        if slowly {
            self.late.push(Late::CompleteTransaction { id });
        } else {
            self.complete_transaction(id);
        }
    }

    /// The commit markers of an id are written: at some time, and at the latest before anything else happens to the id.
    pub(super) fn complete_transaction(&mut self, id: usize) {
        self.broker().hidden.iter_mut().filter(|committed| committed.id == id).for_each(|committed| committed.completed = true);
        while let Some(committed) = self.broker().hidden.pop_front_if(|first| first.completed) {
            self.reveal(committed);
        }
    }

    fn reveal(&mut self, Committed { id, transaction, .. }: Committed) {
        self.note(|| format!("the broker commits {:?} on id {id}", transaction.positions));
        if let (Some(job), false) = (&transaction.job, transaction.positions.is_empty()) {
            self.show(CHANNEL, job, &transaction.positions);
        }
        match transaction.marker {
            Some(marker) => {
                if marker.state == MarkerState::Released {
                    self.stopping.remove(&marker.job);
                }
                self.broker().marker = Some(marker);
            }
            None => self.violate("the broker commits output without a marker".to_owned()),
        }
    }

    /// The broker aborts and fences a transaction that stayed open for too long.
    pub(super) fn time_out(&mut self) {
        let id = self.dice.below(2) as usize;
        if self.broker.is_some() && self.broker().ids[id].open.is_some() && self.fault(1, |budget| &mut budget.time_out) {
            self.note(|| format!("the broker times out the transaction on id {id}"));
            let id = &mut self.broker().ids[id];
            id.epoch += 1;
            id.open = None;
        }
    }
}

#[derive(Debug, Default)]
struct Producers {
    epochs: [u64; 2],
    /// The id that records go to now.
    current: usize,
    /// Which id carries the transaction of a checkpoint.
    of: BTreeMap<Attempt, usize>,
    /// Ids whose last commit had no clean answer.
    unclean: [bool; 2],
}

/// One process's producers.
#[derive(Debug)]
pub(super) struct SimBroker {
    world: Shared,
    process: usize,
    producers: Mutex<Producers>,
}

impl SimBroker {
    pub(super) fn new(world: Shared, process: usize) -> Self {
        Self { world, process, producers: Mutex::default() }
    }

    fn fence_one(&self, id: usize) {
        let mut world = self.world.lock();
        world.note(|| format!("P{} initialises id {id}", self.process));
        world.complete_transaction(id);
        let at = &mut world.broker().ids[id];
        at.epoch += 1;
        at.open = None;
        let mut producers = self.producers.lock().unwrap();
        producers.epochs[id] = at.epoch;
        producers.unclean[id] = false;
    }

    fn fenced(&self) -> LastResourceError {
        LastResourceError::Fenced(format!("a producer of P{} is fenced", self.process))
    }

    /// Sends one record into the open transaction.
    pub(super) async fn send(&self, job: &JobId, position: u64) -> Result<(), LastResourceError> {
        self.in_transaction(|transaction| {
            transaction.job = Some(job.clone());
            transaction.positions.push(position);
        })
        .await
    }

    /// Ends the epoch: the marker goes into the transaction, and the other producer takes over.
    pub(super) async fn end_epoch(&self, marker: Marker) -> Result<(), LastResourceError> {
        let attempt = marker.attempt;
        self.in_transaction(|transaction| transaction.marker = Some(marker)).await?;
        let mut producers = self.producers.lock().unwrap();
        let id = producers.current;
        producers.of.insert(attempt, id);
        producers.current = 1 - id;
        Ok(())
    }

    async fn in_transaction(&self, change: impl FnOnce(&mut Transaction) + Send) -> Result<(), LastResourceError> {
        step().await;
        let id = self.producers.lock().unwrap().current;
        if self.producers.lock().unwrap().unclean[id] {
            self.fence_one_if_valid(id)?;
        }
        let mut world = self.world.lock();
        let valid = world.broker().ids[id].epoch == self.producers.lock().unwrap().epochs[id];
        world.note(|| format!("P{} sends on id {id}{}", self.process, if valid { "" } else { ": fenced" }));
        if !valid {
            return Err(self.fenced());
        }
        world.complete_transaction(id);
        change(world.broker().ids[id].open.get_or_insert_with(Transaction::default));
        Ok(())
    }

    /// A new epoch for an id whose last commit was unclean: a late end of that transaction must not end the next one.
    fn fence_one_if_valid(&self, id: usize) -> Result<(), LastResourceError> {
        let epoch = self.producers.lock().unwrap().epochs[id];
        if self.world.lock().broker().ids[id].epoch != epoch {
            return Err(self.fenced());
        }
        self.fence_one(id);
        Ok(())
    }

    fn end(&self, id: usize) -> Result<(), LastResourceError> {
        let epoch = self.producers.lock().unwrap().epochs[id];
        let mut world = self.world.lock();
        if world.broker().ids[id].epoch != epoch {
            return Err(self.fenced());
        }
        if world.fault(10, |budget| &mut budget.lost) {
            let is_first = !std::mem::replace(&mut self.producers.lock().unwrap().unclean[id], true);
            if world.dice.one_in(2) {
                world.end_transaction(id, epoch, false);
            }
            world.note(|| format!("P{} ends the transaction on id {id}: no answer", self.process));
            world.late.push(Late::EndTransaction { id, epoch });
            let reason = "no answer".to_owned();
            return Err(if is_first { LastResourceError::Unknown(reason) } else { LastResourceError::Lost(reason) });
        }
        let slowly = world.fault(10, |budget| &mut budget.lost);
        if slowly {
            world.note(|| format!("P{} ends the transaction on id {id}, which nobody sees yet", self.process));
        }
        world.end_transaction(id, epoch, slowly);
        Ok(())
    }
}

#[async_trait]
impl LastResource for SimBroker {
    fn ids(&self) -> Vec<String> {
        vec!["prefix-0".to_owned(), "prefix-1".to_owned()]
    }

    async fn read_marker(&self) -> Result<Option<Marker>, LastResourceError> {
        step().await;
        let mut world = self.world.lock();
        if world.fault(40, |budget| &mut budget.failed) {
            return Err(LastResourceError::Unknown("the marker could not be read".to_owned()));
        }
        Ok(world.broker().marker.clone())
    }

    async fn fence(&self, _: &[String]) -> Result<(), LastResourceError> {
        for id in 0..2 {
            step().await;
            self.fence_one(id);
        }
        let mut producers = self.producers.lock().unwrap();
        *producers = Producers { epochs: producers.epochs, ..Producers::default() };
        Ok(())
    }

    async fn commit_genesis(&self, marker: &Marker) -> Result<(), LastResourceError> {
        self.end_epoch(marker.clone()).await?;
        loop {
            match self.commit(marker.attempt).await {
                Err(LastResourceError::Unknown(_)) => {}
                other => return other,
            }
        }
    }

    async fn commit(&self, checkpoint: Attempt) -> Result<(), LastResourceError> {
        step().await;
        let id = self.producers.lock().unwrap().of.get(&checkpoint).copied();
        let result = match id {
            Some(id) => self.end(id),
            None => Err(LastResourceError::Lost("no such transaction".to_owned())),
        };
        step().await;
        result
    }
}
