//! Windows and joins against the plain way to compute them: shuffled and late records, watermarks and restores anywhere.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use serde::Deserialize;
use waterwheel_plugin::testing::{Input, KeyedHarness, Scope, Snapshot};
use waterwheel_plugin::{
    AllRecords, Declare, Emit, Environment, Failure, IntervalJoin, IntervalJoinState, KeyedOutput, KeyedPlugin, Pair, Pane, Record, Timer,
    Window, WindowAssigner, WindowJoin, WindowJoinState, WindowState, Windows, export_keyed,
};

#[derive(Debug, Clone, Copy, Deserialize)]
struct Config {
    size: u64,
    #[serde(default)]
    slide: Option<u64>,
    #[serde(default)]
    session: bool,
    #[serde(default)]
    offset: i64,
    #[serde(default)]
    lateness: u64,
    #[serde(default)]
    outer: bool,
}

impl Config {
    fn assigner(self) -> Result<WindowAssigner, Failure> {
        let ms = Duration::from_millis;
        Ok(match (self.session, self.slide) {
            (true, _) => WindowAssigner::session(ms(self.size))?,
            (false, None) => WindowAssigner::tumbling(ms(self.size))?.offset(self.offset),
            (false, Some(slide)) => WindowAssigner::sliding(ms(self.size), ms(slide))?.offset(self.offset),
        })
    }

    fn json(self) -> String {
        let Self { size, slide, session, offset, lateness, outer } = self;
        let slide = slide.map_or("null".to_owned(), |slide| slide.to_string());
        format!(r#"{{"size":{size},"slide":{slide},"session":{session},"offset":{offset},"lateness":{lateness},"outer":{outer}}}"#)
    }
}

/// Emits all records of each window.
struct Lists {
    windows: Windows<AllRecords<u64>>,
}

fn emit_list(pane: Pane<'_, Vec<u64>>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
    let mut numbers = pane.result;
    numbers.sort_unstable();
    out.emit(&format!("{} {} {numbers:?}", pane.window.start, pane.window.end));
    Ok(())
}

impl KeyedPlugin for Lists {
    type Config = Config;
    type States = (WindowState<AllRecords<u64>>, AllRecords<u64>);
    const SIDE_OUTPUTS: &'static [&'static str] = &["over"];

    fn declare(states: &mut Declare) -> Self::States {
        (states.windows("windows"), states.all_records("records"))
    }

    fn open(config: Config, (windows, records): Self::States, _: &Environment) -> Result<Self, Failure> {
        let windows = windows.assign(config.assigner()?, records).allowed_lateness(Duration::from_millis(config.lateness));
        Ok(Self { windows })
    }

    fn process(&mut self, record: &Record<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        let number = std::str::from_utf8(record.value().unwrap_or_default())?.parse()?;
        if self.windows.add(record, &number, out, emit_list)?.is_late() {
            out.emit(Emit::from(record).to("over"));
        }
        Ok(())
    }

    fn on_timer(&mut self, timer: &Timer<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        self.windows.on_timer(timer, out, emit_list)?;
        Ok(())
    }
}

mod exported {
    waterwheel_plugin::export_keyed!(super::Lists);
}

/// Both joins of two inputs of numbers.
struct Joins {
    interval: IntervalJoin<u64, u64>,
    window: WindowJoin<u64, u64>,
}

fn emit_pair(pair: Pair<'_, u64, u64>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
    out.emit(&format!("{} {:?}", pair.left.0, pair.right.map(|right| right.0)));
    Ok(())
}

fn emit_joined(pane: Pane<'_, (&u64, &u64)>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
    out.emit(Emit::value(&format!("{} {}", pane.result.0, pane.result.1)).to("by-window"));
    Ok(())
}

impl KeyedPlugin for Joins {
    type Config = Config;
    type States = (IntervalJoinState<u64, u64>, WindowJoinState<u64, u64>);
    const INPUTS: &'static [&'static str] = &["left", "right"];
    const SIDE_OUTPUTS: &'static [&'static str] = &["by-window", "over"];

    fn declare(states: &mut Declare) -> Self::States {
        (states.interval_join("interval"), states.window_join("window"))
    }

    fn open(config: Config, (interval, window): Self::States, _: &Environment) -> Result<Self, Failure> {
        let interval = interval.between(config.offset, config.offset + i64::try_from(config.lateness)?)?;
        let interval = if config.outer { interval.left_outer() } else { interval };
        Ok(Self { interval, window: window.assign(config.assigner()?) })
    }

    fn process(&mut self, record: &Record<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        let number = std::str::from_utf8(record.value().unwrap_or_default())?.parse()?;
        let arrival = if record.input() == 0 {
            let _ = self.window.add_left(record, number, out, emit_joined)?;
            self.interval.add_left(record, number, out, emit_pair)?
        } else {
            let _ = self.window.add_right(record, number, out, emit_joined)?;
            self.interval.add_right(record, number, out, emit_pair)?
        };
        if arrival.is_late() {
            out.emit(Emit::from(record).to("over"));
        }
        Ok(())
    }

    fn on_timer(&mut self, timer: &Timer<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        let _ = self.interval.on_timer(timer, out, emit_pair)? || self.window.on_timer(timer, out, emit_joined)?;
        Ok(())
    }
}

export_keyed!(Joins);

#[derive(Debug, Clone, Copy)]
enum Step {
    /// Input, key, how far from the watermark.
    Record(u32, bool, i64),
    Watermark(i64),
    Changed,
    Restore,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0..2_u32, any::<bool>(), -25..60_i64).prop_map(|(input, key, ahead)| Step::Record(input, key, ahead)),
        4 => prop_oneof![4 => 0..15_i64, 1 => 0..90_i64].prop_map(Step::Watermark),
        1 => Just(Step::Changed),
        1 => Just(Step::Restore),
    ];
    prop::collection::vec(step, 1..60)
}

fn config() -> impl Strategy<Value = Config> {
    (4..20_u64, prop::option::of(1..4_u64), any::<bool>(), -9..9_i64, prop_oneof![Just(0), 0..25_u64], any::<bool>())
        .prop_map(|(size, slide, session, offset, lateness, outer)| Config { size, slide, session, offset, lateness, outer })
}

const FIRST: i64 = -40;

/// Runs the steps; calls `each` after those that did something, with the watermark and the record.
fn run<P: KeyedPlugin<Config = Config>>(
    config: Config,
    steps: &[Step],
    mut each: impl FnMut(&mut KeyedHarness<P>, i64, Option<(u32, &'static str, i64, u64)>),
) {
    let mut plugin = KeyedHarness::<P>::open(&config.json()).unwrap();
    let mut stored = Snapshot::default();
    let (mut watermark, mut number) = (FIRST, 0);
    plugin.advance_watermark(watermark).unwrap();
    for step in steps {
        match *step {
            Step::Record(input, key, ahead) => {
                number += 1;
                let (key, timestamp) = (if key { "a" } else { "b" }, watermark + ahead);
                plugin.process(input, &[Input::value(number.to_string()).key(key).timestamp(timestamp)]).unwrap();
                assert_eq!(plugin.take_failures(), []);
                each(&mut plugin, watermark, Some((input, key, timestamp, number)));
            }
            Step::Watermark(by) => {
                watermark += by;
                plugin.advance_watermark(watermark).unwrap();
                each(&mut plugin, watermark, None);
            }
            Step::Changed => stored.append(plugin.snapshot(Scope::Changed).unwrap()),
            Step::Restore => {
                stored.append(plugin.snapshot(Scope::Changed).unwrap());
                plugin = KeyedHarness::restore(&config.json(), &stored).unwrap();
            }
        }
    }
    plugin.finish().unwrap();
    each(&mut plugin, i64::MAX, None);
    assert_eq!(plugin.timers(), []);
    assert_eq!(plugin.snapshot(Scope::All).unwrap().entries(), []);
}

/// The windows of one key: what is in them, and up to which watermark they have fired.
type Model = BTreeMap<(i64, i64), Vec<u64>>;

fn windows_of(config: Config, timestamp: i64) -> Vec<(i64, i64)> {
    let size = i64::try_from(config.size).unwrap();
    let slide = config.slide.map_or(size, |slide| i64::try_from(slide).unwrap());
    let starts = (timestamp - size + 1..=timestamp).filter(|start| (start - config.offset).rem_euclid(slide) == 0);
    starts.map(|start| (start, start + size)).collect()
}

/// Adds a record; returns the windows it went to.
fn add(config: Config, model: &mut Model, watermark: i64, timestamp: i64, number: u64) -> Vec<(i64, i64)> {
    let over = |end: i64| end - 1 + i64::try_from(config.lateness).unwrap() <= watermark;
    if !config.session {
        let windows: Vec<_> = windows_of(config, timestamp).into_iter().filter(|window| !over(window.1)).collect();
        windows.iter().for_each(|window| model.entry(*window).or_default().push(number));
        return windows;
    }
    let mut merged = (timestamp, timestamp + i64::try_from(config.size).unwrap());
    let met: Vec<_> = model.keys().copied().filter(|(start, end)| *start <= merged.1 && merged.0 <= *end).collect();
    if met.is_empty() && over(merged.1) {
        return Vec::new();
    }
    let mut numbers = vec![number];
    for window in met {
        merged = (merged.0.min(window.0), merged.1.max(window.1));
        numbers.extend(model.remove(&window).unwrap());
    }
    model.insert(merged, numbers);
    vec![merged]
}

fn shown(window: (i64, i64), model: &Model) -> (i64, String) {
    let mut numbers = model[&window].clone();
    numbers.sort_unstable();
    (window.1 - 1, format!("{} {} {numbers:?}", window.0, window.1))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn windows_fire_as_the_plain_way_says(config in config(), steps in steps()) {
        let mut models: BTreeMap<&str, Model> = BTreeMap::new();
        let mut before = FIRST;
        run::<Lists>(config, &steps, |plugin, watermark, record| {
            let mut expected = BTreeMap::<(i64, String), usize>::new();
            let mut late = 0;
            if let Some((_, key, timestamp, number)) = record {
                let model = models.entry(key).or_default();
                let windows = add(config, model, watermark, timestamp, number);
                late = usize::from(windows.is_empty());
                for window in windows.into_iter().filter(|(_, end)| end - 1 <= watermark) {
                    *expected.entry(shown(window, model)).or_default() += 1;
                }
            }
            for model in models.values_mut() {
                for window in model.keys().filter(|(_, end)| end - 1 > before && end - 1 <= watermark) {
                    *expected.entry(shown(*window, model)).or_default() += 1;
                }
                model.retain(|(_, end), _| (end - 1).saturating_add(i64::try_from(config.lateness).unwrap()) > watermark);
            }
            before = watermark;
            let mut found = BTreeMap::<(i64, String), usize>::new();
            for record in plugin.take_output() {
                *found.entry((record.timestamp, record.text().to_owned())).or_default() += 1;
            }
            assert_eq!(found, expected);
            assert_eq!(plugin.take_side_output("over").len(), late);
        });
    }

    #[test]
    fn joins_emit_the_pairs_that_the_plain_way_says(config in config(), steps in steps()) {
        let (lower, upper) = (config.offset, config.offset + i64::try_from(config.lateness).unwrap());
        let mut taken: Vec<(u32, &str, i64, u64)> = Vec::new();
        let mut windowed: Vec<(u32, &str, i64, u64)> = Vec::new();
        let (mut pairs, mut joined) = (BTreeSet::new(), BTreeSet::new());
        run::<Joins>(config, &steps, |plugin, watermark, record| {
            if let Some(record) = record {
                let late = plugin.take_side_output("over").len() == 1;
                assert_eq!(late, record.2 <= watermark);
                if !late {
                    taken.push(record);
                }
                windowed.push(record);
            }
            for record in plugin.take_output() {
                assert!(pairs.insert(record.text().to_owned()), "{record:?} is there twice");
            }
            joined.extend(plugin.take_side_output("by-window").iter().map(|record| record.text().to_owned()));
        });
        let mut expected = BTreeSet::new();
        for left in taken.iter().filter(|left| left.0 == 0) {
            let rights = taken.iter().filter(|right| right.0 == 1 && right.1 == left.1);
            let rights: Vec<_> = rights.filter(|right| (left.2 + lower..=left.2 + upper).contains(&right.2)).collect();
            expected.extend(rights.iter().map(|right| format!("{} {:?}", left.3, Some(right.3))));
            if config.outer && rights.is_empty() {
                expected.insert(format!("{} None", left.3));
            }
        }
        assert_eq!(pairs, expected);
        if !config.session {
            // Without lateness a record is in those of its windows that were not over when it came, so all of it is here only if none was late.
            let all = windowed.iter().all(|record| taken.contains(record));
            let both = |left: i64, right: i64| windows_of(config, left).iter().any(|window| windows_of(config, right).contains(window));
            let lefts = windowed.iter().filter(|record| record.0 == 0);
            let expected: BTreeSet<String> = lefts
                .flat_map(|left| windowed.iter().filter(move |right| right.0 == 1 && right.1 == left.1).map(move |right| (left, right)))
                .filter(|(left, right)| both(left.2, right.2))
                .map(|(left, right)| format!("{} {}", left.3, right.3))
                .collect();
            assert!(joined.is_subset(&expected));
            assert!(!all || joined == expected);
        }
    }
}

#[test]
fn another_window_size_after_a_restore_leaves_nothing_behind() {
    let mut plugin = KeyedHarness::<Lists>::open(r#"{"size": 60}"#).unwrap();
    plugin.process(0, &[Input::value("1").key("a").timestamp(35)]).unwrap();
    let snapshot = plugin.snapshot(Scope::All).unwrap();
    let mut restored = KeyedHarness::<Lists>::restore(r#"{"size": 30}"#, &snapshot).unwrap();
    restored.process(0, &[Input::value("2").key("a").timestamp(36)]).unwrap();
    restored.advance_watermark(59).unwrap();
    let texts: Vec<_> = restored.take_output().iter().map(|record| record.text().to_owned()).collect();
    assert_eq!(texts, ["0 60 [1]", "30 60 [2]"]);
    assert_eq!(restored.snapshot(Scope::All).unwrap().entries(), []);
    assert_eq!(Window { start: 0, end: 60 }.max_timestamp(), 59);
}

#[test]
fn a_window_that_has_fired_fires_again_when_the_watermark_has_gone_back() {
    for config in [r#"{"size": 10, "lateness": 50}"#, r#"{"size": 10, "lateness": 50, "session": true}"#] {
        let mut plugin = KeyedHarness::<Lists>::open(config).unwrap();
        plugin.process(0, &[Input::value("1").key("a").timestamp(0)]).unwrap();
        plugin.advance_watermark(9).unwrap();
        assert_eq!(plugin.take_output()[0].text(), "0 10 [1]");
        // State alone, without the clocks.
        let mut restored = KeyedHarness::<Lists>::open(config).unwrap();
        restored.import(&plugin.snapshot(Scope::All).unwrap()).unwrap();
        restored.process(0, &[Input::value("2").key("a").timestamp(0)]).unwrap();
        assert_eq!(restored.take_output(), []);
        restored.advance_watermark(9).unwrap();
        assert_eq!(restored.take_output()[0].text(), "0 10 [1, 2]");
        restored.finish().unwrap();
        assert_eq!(restored.snapshot(Scope::All).unwrap().entries(), []);
    }
}
