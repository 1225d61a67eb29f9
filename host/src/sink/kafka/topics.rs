//! What is known of the topics that are written to: whether they are there, how many partitions they have, how large a record may be.

use super::options::{CreateTopics, Settings, TopicFrom, topic_fault};
use crate::Error;
use crate::kafka::Cluster;
use crate::kafka::cluster::{NewTopic, Topic};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long it is taken for granted that a topic or a partition is not there: records may name many, and asking takes time.
const MISSING_FOR: Duration = Duration::from_secs(10);
/// How long a topic that was made may take to be known everywhere.
const APPEARANCE: Duration = Duration::from_secs(5);
/// How many names that are no topics are remembered.
const MOST_MISSING: usize = 1000;
/// librdkafka's default of `message.max.bytes`.
const CLIENT_LIMIT: usize = 1_000_000;

/// A topic that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TopicInfo {
    pub(super) name: String,
    pub(super) partitions: i32,
    /// The largest record, in bytes, and the setting that says so.
    pub(super) limit: usize,
    pub(super) limited_by: &'static str,
    /// Whether it keeps the newest record of each key: then every record needs one.
    pub(super) is_compacted: bool,
    /// How far before and after now a record's timestamp may be, in milliseconds.
    pub(super) behind: i64,
    pub(super) ahead: i64,
}

/// What came of looking for a topic.
#[derive(Clone, Debug)]
pub(super) enum Looked {
    /// It is there.
    There(TopicInfo),
    /// It is not, or no topic can be called that: a sentence.
    Missing(String),
}

/// The topics of a sink, for all its subtasks.
#[derive(Debug)]
pub(super) struct Topics {
    settings: Arc<Settings>,
    cluster: OnceLock<Cluster>,
    known: Mutex<HashMap<String, (Looked, Instant)>>,
}

impl Topics {
    pub(super) fn new(settings: Arc<Settings>) -> Self {
        Self { settings, cluster: OnceLock::new(), known: Mutex::default() }
    }

    /// The client that asks.
    ///
    /// # Errors
    /// Properties that do not go together.
    pub(super) fn cluster(&self) -> Result<&Cluster, Error> {
        if let Some(cluster) = self.cluster.get() {
            return Ok(cluster);
        }
        let cluster = Cluster::new(&self.settings.asking())?;
        Ok(self.cluster.get_or_init(|| cluster))
    }

    /// Looks at the topic that all records go to, and gives it, if there is one. What was known of topics is asked for again.
    ///
    /// # Errors
    /// It is not there and not to be made, or nobody answers.
    pub(super) async fn verify(&self) -> Result<Option<TopicInfo>, Error> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let fixed = self.fixed().await?;
        if fixed.is_none() {
            // That the brokers are there is known then, too.
            self.cluster()?.all_topics().await?;
        }
        Ok(fixed)
    }

    /// The topic that all records go to, if there is one.
    ///
    /// # Errors
    /// It is not there and not to be made, or nobody answers.
    pub(super) async fn fixed(&self) -> Result<Option<TopicInfo>, Error> {
        let TopicFrom::Name(name) = &self.settings.topic else { return Ok(None) };
        match self.look(name, 0).await? {
            Looked::There(info) => Ok(Some(info)),
            Looked::Missing(reason) => Err(Error::user(reason)),
        }
    }

    /// Looks for a topic with more than `partition` partitions; makes it where it is missing and that was asked for.
    ///
    /// # Errors
    /// Nobody answers, or a right is missing.
    pub(super) async fn look(&self, name: &str, partition: i32) -> Result<Looked, Error> {
        if let Some(looked) = self.known(name, partition) {
            return Ok(looked);
        }
        let looked = match topic_fault(name) {
            Some(fault) => Looked::Missing(fault),
            None => self.ask(name).await?,
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_MISSING {
            known.retain(|_, (looked, _)| matches!(looked, Looked::There(_)));
        }
        known.insert(name.to_owned(), (looked.clone(), Instant::now()));
        Ok(looked)
    }

    /// What is known, unless it may have changed.
    fn known(&self, name: &str, partition: i32) -> Option<Looked> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (looked, since) = known.get(name)?;
        let is_enough = matches!(looked, Looked::There(info) if info.partitions > partition);
        (is_enough || since.elapsed() < MISSING_FOR).then(|| looked.clone())
    }

    async fn ask(&self, name: &str) -> Result<Looked, Error> {
        let cluster = self.cluster()?;
        let topic = match (cluster.find_topic(name).await?, self.settings.create_topics) {
            (Some(topic), _) => topic,
            (None, Some(CreateTopics { partitions, replication_factor })) => {
                let topic = NewTopic { name: name.to_owned(), partitions, replicas: replication_factor, config: Vec::new() };
                cluster.create_topic(topic).await?;
                tracing::info!(topic = name, partitions, "the topic was missing and was made");
                cluster
                    .topics(vec![name.to_owned()])
                    .await?
                    .into_iter()
                    .next()
                    .ok_or_else(|| Error::external(format!("topic {name} is not there yet")))?
            }
            (None, None) => {
                let servers = self.settings.client.servers();
                return Ok(Looked::Missing(format!(
                    "topic {name} does not exist at {servers}: create it, correct its name, or set create-topics: {{partitions: …}}"
                )));
            }
        };
        let (right, config) = tokio::join!(self.check_right(cluster, name), self.config(cluster, name));
        right?;
        Ok(Looked::There(self.info(topic, &config?)))
    }

    /// Fails when the user may not write to a topic. A broker that does not say so now says it when it is written to.
    async fn check_right(&self, cluster: &Cluster, name: &str) -> Result<(), Error> {
        match cluster.may_write(name).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::user(format!(
                "topic {name}: {} does not allow the user of this client to write to it: give it the right (ACL) Write on the topic",
                self.settings.client.servers()
            ))),
            Err(error) if error.retry_helps() => Err(error),
            Err(error) => {
                tracing::debug!(topic = name, error = %error.chain(), "the rights on the topic cannot be read");
                Ok(())
            }
        }
    }

    async fn config(&self, cluster: &Cluster, name: &str) -> Result<BTreeMap<String, String>, Error> {
        let deadline = Instant::now() + APPEARANCE;
        loop {
            match cluster.topic_config(name).await {
                Ok(config) => return Ok(config),
                Err(error) if error.retry_helps() => return Err(error),
                // A topic that was made a moment ago is not known everywhere.
                Err(_) if self.settings.create_topics.is_some() && Instant::now() < deadline => tokio::time::sleep(APPEARANCE / 50).await,
                Err(error) => {
                    let error = error.chain();
                    tracing::debug!(
                        topic = name,
                        error,
                        "which records the topic takes cannot be read; the broker says it when it is written to"
                    );
                    return Ok(BTreeMap::new());
                }
            }
        }
    }

    fn info(&self, topic: Topic, config: &BTreeMap<String, String>) -> TopicInfo {
        let client = self.settings.client.get("message.max.bytes").and_then(|given| given.trim().parse().ok()).unwrap_or(CLIENT_LIMIT);
        let (limit, limited_by) = match config.get("max.message.bytes").and_then(|limit| limit.parse().ok()) {
            Some(topic) if topic < client => (topic, "the topic's max.message.bytes"),
            _ => (client, "the client's message.max.bytes"),
        };
        // A broker that puts its own time in takes every other.
        let is_checked = config.get("message.timestamp.type").is_some_and(|kind| kind == "CreateTime");
        let distance = |name| config.get(name).filter(|_| is_checked).and_then(|distance| distance.parse().ok()).unwrap_or(i64::MAX);
        TopicInfo {
            name: topic.name,
            partitions: topic.partitions,
            limit,
            limited_by,
            is_compacted: config.get("cleanup.policy").is_some_and(|policy| policy.contains("compact")),
            behind: distance("message.timestamp.before.max.ms"),
            ahead: distance("message.timestamp.after.max.ms"),
        }
    }
}
