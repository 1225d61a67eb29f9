//! The options of a Kafka source, checked: what the rest of the module works with.

use super::options::{BoundedMode, IsolationLevel, KafkaOptions, Moment, OnLostOffsets, StartupMode, Topics};
use crate::config::{Fault, parse_options};
use crate::kafka::{ClientOptions, Role, TopicPartition};
use regex::Regex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Flink's default.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(300);

/// The longest name of a topic, in characters.
const LONGEST_TOPIC: usize = 249;

/// What Kafka fetches ahead for a reader, in KiB: enough to keep it busy while the next answer is under way.
const FETCH_AHEAD_KIB: &str = "8192";

/// How long the brokers wait for more at the end of a partition, where reading is to end.
const BOUNDED_FETCH_WAIT_MS: &str = "100";

/// What the parts of a Kafka source share.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) uid: String,
    /// How to reach the cluster; without a group.
    pub(super) client: ClientOptions,
    /// The group that is told how far completed checkpoints are.
    pub(super) group: Option<String>,
    pub(super) topics: Wanted,
    pub(super) start: Start,
    pub(super) stop: Stop,
    pub(super) discovery_interval: Option<Duration>,
    pub(super) on_lost: OnLostOffsets,
}

/// Which topics are read.
#[derive(Debug)]
pub(super) enum Wanted {
    Names(Vec<String>),
    Pattern(Regex),
}

impl Wanted {
    pub(super) fn has(&self, topic: &str) -> bool {
        match self {
            Self::Names(names) => names.iter().any(|name| name == topic),
            Self::Pattern(pattern) => pattern.is_match(topic),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Names(names) => f.write_str(&names.join(", ")),
            Self::Pattern(pattern) => write!(f, "{pattern}"),
        }
    }
}

/// Where reading starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Start {
    Earliest,
    Latest,
    Group { group: String, otherwise: Option<Reset> },
    Timestamp(i64),
    Offsets(BTreeMap<TopicPartition, i64>),
}

/// Where to start where a group has committed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reset {
    Earliest,
    Latest,
}

/// Where reading ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Never,
    Latest,
    Timestamp(i64),
    Offsets(BTreeMap<TopicPartition, i64>),
}

impl Settings {
    pub(super) fn is_bounded(&self) -> bool {
        self.stop != Stop::Never
    }

    /// Reads options and checks them. No broker is asked.
    ///
    /// # Errors
    /// Every fault at once.
    pub(super) fn parse(uid: &str, options: &Value) -> Result<Self, Vec<Fault>> {
        let mut options: KafkaOptions = parse_options(options)?;
        let mut faults = Vec::new();
        let reset = options.properties.take("auto.offset.reset");
        let isolation = isolation(&mut options, &mut faults);
        let group = options.properties.take("group.id");
        if group.as_ref().is_some_and(String::is_empty) {
            faults.push(Fault::new("/properties/group.id", "is empty: leave it out for a source without a group"));
        }
        let topics = wanted(&options, &mut faults);
        let start = start(&options, &topics, group.as_deref(), reset.as_deref(), &mut faults);
        let stop = stop(&options, &topics, &mut faults);
        let discovery_interval = match options.partition_discovery_interval {
            Some(_) if options.bounded_mode != BoundedMode::Unbounded => {
                let message = "has no effect with a bounded-mode: the partitions are those that there are when the job starts";
                faults.push(Fault::new("/partition-discovery-interval", message));
                None
            }
            Some(interval) => (!interval.0.is_zero()).then_some(interval.0),
            None => (options.bounded_mode == BoundedMode::Unbounded).then_some(DISCOVERY_INTERVAL),
        };
        match (ClientOptions::check(uid, Role::Source, options.bootstrap_servers.as_ref(), &options.properties), topics) {
            (Ok(mut client), Some(topics)) if faults.is_empty() => {
                client.set("isolation.level", isolation.word());
                let on_lost = options.on_lost_offsets;
                Ok(Self { uid: uid.to_owned(), client, group, topics, start, stop, discovery_interval, on_lost })
            }
            (checked, _) => {
                faults.extend(checked.err().into_iter().flatten());
                Err(faults)
            }
        }
    }

    /// All of a topic that is there now, for a command.
    pub(super) fn whole_topic(mut client: ClientOptions, topic: &str, level: IsolationLevel) -> Self {
        client.take("group.id");
        client.set("isolation.level", level.word());
        Self {
            uid: client.uid().to_owned(),
            client,
            group: None,
            topics: Wanted::Names(vec![topic.to_owned()]),
            start: Start::Earliest,
            stop: Stop::Latest,
            discovery_interval: None,
            on_lost: OnLostOffsets::Fail,
        }
    }

    /// The options of a reader's client.
    pub(super) fn reader_client(&self) -> ClientOptions {
        let mut client = self.client.clone();
        // librdkafka's queue of a consumer hangs on a group id; without a group of the user's nothing is ever committed to this one.
        let group = self.group.clone().unwrap_or_else(|| format!("waterwheel-{}", self.uid));
        client.set("group.id", group).set("enable.auto.commit", "false").set("enable.auto.offset.store", "false");
        // What is lost is dealt with here, and never passed over by the client.
        client.set("auto.offset.reset", "error").set("enable.partition.eof", "true");
        // By default the client waits a second before it asks for more after its queue was full.
        client.set_default("fetch.queue.backoff.ms", "2").set_default("queued.max.messages.kbytes", FETCH_AHEAD_KIB);
        if self.is_bounded() {
            // An end with a gap before it (a control record) is known when a fetch has waited for more in vain.
            client.set_default("fetch.wait.max.ms", BOUNDED_FETCH_WAIT_MS);
        }
        client
    }
}

fn isolation(options: &mut KafkaOptions, faults: &mut Vec<Fault>) -> IsolationLevel {
    let levels = [IsolationLevel::ReadCommitted, IsolationLevel::ReadUncommitted];
    let Some(text) = options.properties.take("isolation.level") else { return options.isolation_level.unwrap_or_default() };
    let level = levels.into_iter().find(|level| level.word() == text);
    let mut fault = |message: String| faults.push(Fault::new("/properties/isolation.level", message));
    match (level, options.isolation_level) {
        (None, _) => fault(format!("{text:?} is no isolation level: write read_committed or read_uncommitted")),
        (Some(level), Some(other)) if level != other => fault(format!("contradicts isolation-level: {}; keep one of them", other.word())),
        _ => {}
    }
    level.or(options.isolation_level).unwrap_or_default()
}

fn wanted(options: &KafkaOptions, faults: &mut Vec<Fault>) -> Option<Wanted> {
    match (&options.topics, &options.topic_pattern) {
        (None, None) => faults.push(Fault::new("/topics", "is missing (the topic to read, or a list of them, or a topic-pattern)")),
        (Some(_), Some(_)) => faults.push(Fault::new("/topic-pattern", "stands beside topics; keep one of them")),
        (None, Some(pattern)) => match Regex::new(&format!("^(?:{pattern})$")) {
            Ok(regex) => return Some(Wanted::Pattern(regex)),
            Err(error) => faults.push(Fault::new("/topic-pattern", format!("is no regular expression: {error}"))),
        },
        (Some(topics), None) => {
            let names = match topics {
                Topics::One(name) => std::slice::from_ref(name),
                Topics::Several(names) => names,
            };
            let path = |index: usize| if matches!(topics, Topics::One(_)) { "/topics".to_owned() } else { format!("/topics/{index}") };
            let before = faults.len();
            if names.is_empty() {
                faults.push(Fault::new("/topics", "is empty: name a topic"));
            }
            for (index, name) in names.iter().enumerate() {
                if names[..index].contains(name) {
                    faults.push(Fault::new(path(index), format!("{name} stands here twice")));
                } else if !is_topic(name) {
                    faults.push(Fault::new(
                        path(index),
                        format!("{name:?} is no name of a topic: letters, digits, `.`, `_`, `-`, at most 249"),
                    ));
                }
            }
            return (faults.len() == before).then(|| Wanted::Names(names.to_vec()));
        }
    }
    None
}

fn is_topic(name: &str) -> bool {
    let is_word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'));
    is_word && (1..=LONGEST_TOPIC).contains(&name.len()) && name != "." && name != ".."
}

fn start(options: &KafkaOptions, topics: &Option<Wanted>, group: Option<&str>, reset: Option<&str>, faults: &mut Vec<Fault>) -> Start {
    let mode = options.startup_mode;
    let timestamp = moment("startup", options.startup_timestamp, mode == StartupMode::Timestamp, faults);
    let given = (&options.startup_specific_offsets, mode == StartupMode::SpecificOffsets);
    let offsets = specific_offsets("startup", given, topics, faults);
    if let (Some(reset), true) = (reset, mode != StartupMode::GroupOffsets) {
        let message = format!(
            "{reset:?} has an effect only with startup-mode: group-offsets; set startup-mode, and on-lost-offsets for deleted records"
        );
        faults.push(Fault::new("/properties/auto.offset.reset", message));
    }
    match mode {
        StartupMode::EarliestOffset => Start::Earliest,
        StartupMode::LatestOffset => Start::Latest,
        StartupMode::Timestamp => Start::Timestamp(timestamp),
        StartupMode::SpecificOffsets => Start::Offsets(offsets),
        StartupMode::GroupOffsets => {
            let otherwise = match reset {
                None | Some("none" | "error") => None,
                Some("earliest") => Some(Reset::Earliest),
                Some("latest") => Some(Reset::Latest),
                Some(other) => {
                    let message = format!("{other:?} is no rule: write earliest, latest or none");
                    faults.push(Fault::new("/properties/auto.offset.reset", message));
                    None
                }
            };
            if group.is_none() {
                faults.push(Fault::new("/startup-mode", "group-offsets needs the group.id in properties"));
            }
            Start::Group { group: group.unwrap_or_default().to_owned(), otherwise }
        }
    }
}

fn stop(options: &KafkaOptions, topics: &Option<Wanted>, faults: &mut Vec<Fault>) -> Stop {
    let mode = options.bounded_mode;
    let timestamp = moment("bounded", options.bounded_timestamp, mode == BoundedMode::Timestamp, faults);
    let given = (&options.bounded_specific_offsets, mode == BoundedMode::SpecificOffsets);
    let offsets = specific_offsets("bounded", given, topics, faults);
    match mode {
        BoundedMode::Unbounded => Stop::Never,
        BoundedMode::LatestOffset => Stop::Latest,
        BoundedMode::Timestamp => Stop::Timestamp(timestamp),
        BoundedMode::SpecificOffsets => Stop::Offsets(offsets),
    }
}

fn moment(side: &str, given: Option<Moment>, wanted: bool, faults: &mut Vec<Fault>) -> i64 {
    let path = format!("/{side}-timestamp");
    match (given, wanted) {
        (None, true) => faults.push(Fault::new(path, format!("is missing: {side}-mode is timestamp"))),
        (Some(_), false) => faults.push(Fault::new(path, format!("has an effect only with {side}-mode: timestamp"))),
        _ => {}
    }
    given.map_or(0, Moment::milliseconds)
}

fn specific_offsets(
    side: &str,
    (given, wanted): (&BTreeMap<String, u64>, bool),
    topics: &Option<Wanted>,
    faults: &mut Vec<Fault>,
) -> BTreeMap<TopicPartition, i64> {
    let path = format!("/{side}-specific-offsets");
    if wanted && given.is_empty() {
        faults.push(Fault::new(path.as_str(), format!("is missing: {side}-mode is specific-offsets")));
    }
    if !wanted && !given.is_empty() {
        faults.push(Fault::new(path.as_str(), format!("has an effect only with {side}-mode: specific-offsets")));
    }
    let mut offsets = BTreeMap::new();
    for (name, offset) in given {
        let place = format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
        let Some(partition) = TopicPartition::parse(name) else {
            faults.push(Fault::new(place, format!("{name:?} is no partition: write topic-partition, such as orders-0")));
            continue;
        };
        let is_read = topics.as_ref().is_none_or(|topics| topics.has(&partition.topic));
        if !is_read {
            faults.push(Fault::new(place, format!("topic {} is not read by this source", partition.topic)));
        }
        offsets.insert(partition, i64::try_from(*offset).unwrap_or(i64::MAX));
    }
    offsets
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(mut options: Value) -> Result<Settings, Vec<String>> {
        options["bootstrap-servers"] = json!("localhost:9092");
        Settings::parse("in", &options).map_err(|faults| faults.iter().map(ToString::to_string).collect())
    }

    fn faults(options: Value) -> String {
        parse(options).unwrap_err().join("\n")
    }

    #[test]
    fn defaults_read_everything_that_is_committed() {
        let settings = parse(json!({"topics": "orders"})).unwrap();
        assert_eq!(settings.start, Start::Earliest);
        assert!(!settings.is_bounded());
        assert_eq!(settings.discovery_interval, Some(DISCOVERY_INTERVAL));
        let client = settings.reader_client();
        assert_eq!((client.get("isolation.level"), client.get("group.id")), (Some("read_committed"), Some("waterwheel-in")));
        assert_eq!(client.get("fetch.queue.backoff.ms"), Some("2"));
    }

    #[test]
    fn what_is_asked_for_twice_or_not_at_all_is_a_fault() {
        assert!(faults(json!({})).starts_with("/topics: is missing"));
        assert!(faults(json!({"topics": "a", "topic-pattern": "b"})).contains("/topic-pattern: stands beside topics"));
        assert!(faults(json!({"topics": []})).contains("/topics: is empty"));
        assert!(faults(json!({"topics": ["a", "a", "b c"]})).contains("/topics/1: a stands here twice\n/topics/2: \"b c\" is no name"));
        assert!(faults(json!({"topic-pattern": "a("})).contains("no regular expression"));
    }

    #[test]
    fn start_and_end_go_with_their_modes() {
        assert!(faults(json!({"topics": "a", "startup-mode": "timestamp"})).contains("/startup-timestamp: is missing"));
        assert!(faults(json!({"topics": "a", "bounded-timestamp": 5})).contains("only with bounded-mode: timestamp"));
        assert!(faults(json!({"topics": "a", "startup-mode": "group-offsets"})).contains("needs the group.id"));
        let wrong = json!({"topics": "a", "startup-mode": "specific-offsets", "startup-specific-offsets": {"b-0": 1, "a": 2}});
        assert!(faults(wrong).contains("\"a\" is no partition"));
        let right = json!({"topics": "a", "startup-mode": "specific-offsets", "startup-specific-offsets": {"a-1": 7}, "bounded-mode": "latest-offset"});
        let settings = parse(right).unwrap();
        assert_eq!(settings.start, Start::Offsets(BTreeMap::from([(TopicPartition::new("a", 1), 7)])));
        assert_eq!(settings.discovery_interval, None);
        let moment = parse(json!({"topics": "a", "startup-mode": "timestamp", "startup-timestamp": "1970-01-01T00:00:05Z"})).unwrap();
        assert_eq!(moment.start, Start::Timestamp(5000));
    }

    #[test]
    fn the_rule_for_a_group_without_offsets_is_the_property_that_flink_has() {
        let options = |reset: &str, mode: &str| json!({"topics": "a", "startup-mode": mode, "properties": {"group.id": "g", "auto.offset.reset": reset}});
        let settings = parse(options("latest", "group-offsets")).unwrap();
        assert_eq!(settings.start, Start::Group { group: "g".into(), otherwise: Some(Reset::Latest) });
        assert!(faults(options("latest", "earliest-offset")).contains("/properties/auto.offset.reset: \"latest\" has an effect only"));
        assert!(faults(options("smallest", "group-offsets")).contains("write earliest, latest or none"));
    }

    #[test]
    fn the_isolation_level_is_said_once() {
        let level = |options: Value| parse(options).unwrap().client.get("isolation.level").unwrap().to_owned();
        assert_eq!(level(json!({"topics": "a", "properties": {"isolation.level": "read_uncommitted"}})), "read_uncommitted");
        assert_eq!(level(json!({"topics": "a", "isolation-level": "read_uncommitted"})), "read_uncommitted");
        let both = json!({"topics": "a", "isolation-level": "read_committed", "properties": {"isolation.level": "read_uncommitted"}});
        assert!(faults(both).contains("contradicts isolation-level: read_committed"));
    }

    #[test]
    fn faults_of_the_client_are_found_with_the_others() {
        let faults = faults(json!({"topics": [], "properties": {"enable.auto.commit": true, "fetch.min.byte": 1}}));
        assert!(
            faults.contains("/topics: is empty")
                && faults.contains("/properties/enable.auto.commit: ")
                && faults.contains("fetch.min.bytes")
        );
    }
}
