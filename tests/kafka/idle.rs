//! A job without input for so long that the broker forgets the group's offsets: they were for people only.

use crate::broker::Broker;
use crate::job::{Job, NARROW, Shape, WIDE};
use crate::topics::{group_offset, move_group_offset, wait_for};
use std::thread;
use std::time::{Duration, Instant};

/// The shortest that a broker keeps offsets of a group without members.
const RETENTION: Duration = Duration::from_secs(60);

pub(crate) fn a_job_whose_group_offsets_expire_goes_on_where_it_was() {
    let settings = ["offsets.retention.minutes=1", "offsets.retention.check.interval.ms=1000", "broker.session.timeout.ms=60000"];
    let broker = Broker::start(&settings.map(|setting| ["--set", setting]).concat());
    // One is idle and runs, one is killed and waits.
    let idle = Job::on(&broker, broker.bootstrap(), Shape { records: 1_000, rate: 100_000, ..NARROW });
    let killed = Job::on(&broker, broker.bootstrap(), Shape { records: 3_000, ..WIDE });
    let running = idle.run_until(1_000);
    let process = killed.run_until(500);
    wait_for("the offsets of the job to be killed were committed", || {
        group_offset(&broker, &killed.name, &killed.topic("orders"), 0).is_some()
    });
    assert!(killed.kill(process));
    wait_for("the offsets were committed to the group", || group_offset(&broker, &idle.name, &idle.topic("orders"), 0) == Some(1_000));
    let began = Instant::now();
    wait_for("the killed job's offsets had expired", || {
        thread::sleep(Duration::from_secs(1));
        group_offset(&broker, &killed.name, &killed.topic("orders"), 0).is_none()
    });
    assert!(began.elapsed() > RETENTION / 2, "they were never there");
    killed.finish();
    killed.check();
    // Moved by hand, the group's offset changes nothing either.
    assert!(idle.kill(running));
    move_group_offset(&broker, &idle.name, &idle.topic("orders"), 0, 17);
    idle.finish();
    idle.check();
}
