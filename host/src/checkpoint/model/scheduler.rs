//! The seeded scheduler: who goes on, who crashes, sleeps or wakes, what arrives late.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::super::protocol::Slot;
use super::super::protocol::fork::StartFrom;
use super::process::{End, Wish, run};
use super::world::{Budget, Counts, Late, POSITIONS, SINKS, Shared, World};

/// Steps with faults.
const FAULTY_STEPS: u64 = 1_500;
/// Steps after which a job without faults counts as stuck.
const CALM_STEPS: u64 = 6_000;
/// Recoveries in a calm world after which live instances count as fencing each other for ever.
const CALM_RECOVERIES: u64 = 8;

/// What a history led to.
#[derive(Debug)]
pub(super) struct History {
    pub(super) violation: Option<String>,
    pub(super) trace: u64,
    pub(super) steps: u64,
    pub(super) counts: Counts,
}

type Process = Pin<Box<dyn Future<Output = End> + Send>>;

#[derive(Default)]
struct Instance {
    process: Option<Process>,
    /// Not scheduled before this step.
    asleep_until: u64,
}

struct Scheduler {
    world: Shared,
    instances: Vec<Instance>,
    finished: bool,
    last_end: Option<End>,
    /// In a calm world: how many steps each instance takes in turn; zero: the dice choose.
    turns: [u64; 3],
    turn: u64,
}

/// Runs the history of one seed.
pub(super) fn run_history(seed: u64, print: bool) -> History {
    let mut world = World::new(seed, print);
    let dice = &mut world.dice;
    let heavy = dice.one_in(2);
    let mut up_to = |few: u64, many: u64| dice.below(if heavy { many } else { few } + 1);
    world.budget = Budget {
        lost: up_to(2, 6),
        failed: up_to(1, 4),
        sink: up_to(1, 3),
        give_up: up_to(2, 3),
        crash: up_to(2, 6),
        start: 1 + up_to(2, 7),
        fork: up_to(1, 2),
        stop: up_to(1, 1),
        time_out: up_to(1, 2),
    };
    let instances = 2 + world.dice.below(2) as usize;
    // In lockstep, instances that fence each other do so for ever.
    let turns = [[0, 0, 0], [1, 1, 1], [3, 1, 2], [1, 3, 2]][world.dice.below(4) as usize];
    let mut scheduler = Scheduler {
        world: Shared::new(world),
        instances: (0..instances).map(|_| Instance::default()).collect(),
        finished: false,
        last_end: None,
        turns,
        turn: 0,
    };
    scheduler.with_faults();
    scheduler.calm();
    let mut world = scheduler.world.lock();
    if world.violation.is_none() {
        check_end(&mut world);
    }
    History { violation: world.violation.clone(), trace: world.trace(), steps: world.steps, counts: world.counts.clone() }
}

/// At the end everything is visible, once, in every channel.
fn check_end(world: &mut World) {
    if world.broker.is_some() {
        (0..2).for_each(|id| world.complete_transaction(id));
    }
    let job = world.newest_incarnation();
    for channel in world.channels() {
        let shown = world.shown_until(channel, &job);
        if shown != POSITIONS {
            world.violate(format!("finished, but {channel} of {job} shows up to {shown} of {POSITIONS}"));
        }
    }
    let lines: Vec<_> = SINKS.iter().map(|sink| world.shown.get(&((*sink).to_owned(), job.clone())).cloned()).collect();
    if lines.windows(2).any(|pair| pair[0] != pair[1]) {
        world.violate("the sinks disagree".to_owned());
    }
}

impl Scheduler {
    fn done(&self) -> bool {
        self.world.lock().violation.is_some()
    }

    fn alive(&self) -> Vec<usize> {
        (0..self.instances.len()).filter(|index| self.instances[*index].process.is_some()).collect()
    }

    fn with_faults(&mut self) {
        self.start(0);
        for _ in 0..FAULTY_STEPS {
            if self.done() || (self.alive().is_empty() && !self.restart()) {
                return;
            }
            self.event();
            self.one_step();
        }
    }

    /// One step of an instance that is awake.
    fn one_step(&mut self) {
        let now = {
            let mut world = self.world.lock();
            world.steps += 1;
            world.steps
        };
        let awake: Vec<usize> = self.alive().into_iter().filter(|index| self.instances[*index].asleep_until <= now).collect();
        if awake.is_empty() {
            return;
        }
        let chosen = awake[self.world.lock().dice.below(awake.len() as u64) as usize];
        self.poll(chosen);
    }

    /// One step of whose turn it is.
    fn calm_step(&mut self) {
        let round: u64 = self.turns.iter().sum();
        if round == 0 {
            return self.one_step();
        }
        for _ in 0..round {
            let mut at = self.turn % round;
            self.turn += 1;
            let index = self.turns.iter().position(|steps| {
                let here = at < *steps;
                at = at.saturating_sub(*steps);
                here
            });
            let index = index.filter(|index| self.instances.get(*index).is_some_and(|instance| instance.process.is_some()));
            if let Some(index) = index {
                self.world.lock().steps += 1;
                return self.poll(index);
            }
        }
    }

    fn poll(&mut self, index: usize) {
        let Some(process) = &mut self.instances[index].process else {
            return;
        };
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(end) = process.as_mut().poll(&mut context) {
            self.instances[index].process = None;
            let mut world = self.world.lock();
            world.note(|| format!("P{index} ends: {end:?}"));
            world.counts.superseded += u64::from(end == End::Superseded);
            self.finished |= end == End::Finished;
            self.last_end = Some(end);
        }
    }

    /// Now and then something happens beside the steps.
    fn event(&mut self) {
        let index = self.world.lock().dice.below(self.instances.len() as u64) as usize;
        let kind = self.world.lock().dice.below(60);
        let alive = self.instances[index].process.is_some();
        match kind {
            0 if alive => self.crash(index),
            1 | 2 if !alive && self.world.lock().fault(1, |budget| &mut budget.start) => self.start(index),
            3 if alive => {
                let mut world = self.world.lock();
                let until = world.steps + 1 + world.dice.below(200);
                world.note(|| format!("P{index} sleeps until step {until}"));
                self.instances[index].asleep_until = until;
            }
            4 | 5 => self.late_arrival(),
            6 => self.world.lock().time_out(),
            _ => {}
        }
    }

    fn crash(&mut self, index: usize) {
        let mut world = self.world.lock();
        if world.fault(1, |budget| &mut budget.crash) {
            world.counts.crashes += 1;
            world.note(|| format!("P{index} crashes"));
            drop(world);
            self.instances[index].process = None;
        }
    }

    fn late_arrival(&mut self) {
        let mut world = self.world.lock();
        if world.late.is_empty() {
            return;
        }
        let waiting = world.late.len() as u64;
        let which = world.dice.below(waiting) as usize;
        let late = world.late.swap_remove(which);
        world.counts.late += 1;
        match late {
            Late::Create(path, content) => {
                let taken = world.objects.contains_key(&path);
                world.note(|| format!("the late create of {path} arrives: {}", if taken { "exists" } else { "done" }));
                if !taken {
                    world.land(&path, &content);
                }
            }
            Late::Delete(path) => {
                world.note(|| format!("the late delete of {path} arrives"));
                world.objects.remove(&path);
            }
            Late::CompleteTransaction { id } => world.complete_transaction(id),
            Late::EndTransaction { id, epoch } => {
                world.note(|| format!("the late end of a transaction on id {id} arrives"));
                world.end_transaction(id, epoch, false);
            }
        }
    }

    /// A supervisor starts somebody when everybody is down.
    fn restart(&mut self) -> bool {
        if self.finished && self.world.lock().budget.fork == 0 || !self.world.lock().fault(1, |budget| &mut budget.start) {
            return false;
        }
        let index = self.world.lock().dice.below(self.instances.len() as u64) as usize;
        self.start(index);
        true
    }

    fn start(&mut self, index: usize) {
        let mut world = self.world.lock();
        let job = world.newest_incarnation();
        let newest = world.newest_entry(&job).map(|manifest| manifest.slot);
        let forks = newest.is_some() && world.fault(2, |budget| &mut budget.fork);
        let from = match newest {
            Some(newest) if forks && world.dice.one_in(3) => StartFrom::Slot(Slot(world.dice.below(newest.0 + 1))),
            Some(newest) if forks && world.dice.one_in(2) => StartFrom::Slot(newest.previous().unwrap_or(newest)),
            Some(_) if forks => StartFrom::Fresh,
            _ => StartFrom::Latest,
        };
        world.counts.forks += u64::from(forks);
        let allow_duplicate_output = forks && !world.dice.one_in(4);
        world.note(|| format!("P{index} starts from {from:?}, duplicates allowed: {allow_duplicate_output}"));
        drop(world);
        let wish = Wish { from, allow_duplicate_output };
        self.instances[index].process = Some(Box::pin(run(self.world.clone(), index, wish)));
        self.instances[index].asleep_until = 0;
    }

    /// No more faults: what lives goes on, what is late may arrive, and somebody has to complete the job.
    fn calm(&mut self) {
        if self.done() {
            return;
        }
        let recoveries = {
            let mut world = self.world.lock();
            world.note(|| "no more faults".to_owned());
            world.budget = Budget::default();
            world.counts.recoveries
        };
        self.instances.iter_mut().for_each(|instance| instance.asleep_until = 0);
        self.finished = false;
        let mut starts = 0;
        for _ in 0..CALM_STEPS {
            if self.done() {
                return;
            }
            if self.alive().is_empty() {
                if self.last_end == Some(End::Finished) && self.newest_is_finished() {
                    return;
                }
                starts += 1;
                if starts > 4 {
                    let end = format!("{:?}", self.last_end);
                    self.world.lock().violate(format!("stuck: alone and without faults the job does not complete: {end}"));
                    return;
                }
                self.start_alone();
            }
            if self.world.lock().dice.one_in(40) {
                self.late_arrival();
            }
            self.calm_step();
            if self.world.lock().counts.recoveries > recoveries + CALM_RECOVERIES {
                self.world.lock().violate("live instances recover again and again without faults".to_owned());
                return;
            }
        }
        self.world.lock().violate("stuck: the job does not come to an end without faults".to_owned());
    }

    /// A `forked` entry may have arrived late, behind the end of the job: then there is another one to finish.
    fn newest_is_finished(&self) -> bool {
        let world = self.world.lock();
        world.is_finished(&world.newest_incarnation())
    }

    /// A person starts the job as it is. An unfinished fork that may not repeat output is told that it may.
    fn start_alone(&mut self) {
        self.world.lock().note(|| "P0 is started alone".to_owned());
        let wish = Wish { from: StartFrom::Latest, allow_duplicate_output: true };
        self.instances[0].process = Some(Box::pin(run(self.world.clone(), 0, wish)));
        self.last_end = None;
    }
}
