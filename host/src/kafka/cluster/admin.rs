//! What needs the administrator's interface: configurations of topics and brokers, and making topics.

use super::{Client, Cluster, DEADLINE, error, retry};
use crate::Error;
use crate::kafka::{Context, ffi};
use rdkafka::admin::{AdminClient, AdminOptions, ConfigResource, ResourceSpecifier, TopicReplication};
use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use std::collections::BTreeMap;
use std::time::Duration;

/// A topic to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewTopic {
    /// Its name.
    pub(crate) name: String,
    /// The number of partitions.
    pub(crate) partitions: i32,
    /// Copies of each; the brokers' default where there is none.
    pub(crate) replicas: Option<i32>,
    /// Its configuration, such as `cleanup.policy`.
    pub(crate) config: Vec<(String, String)>,
}

/// What came of making a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Created {
    /// It was made.
    Now,
    /// There was one of that name.
    Before,
}

impl Cluster {
    /// The configuration of a topic by name, such as `max.message.bytes`, with defaults.
    ///
    /// # Errors
    /// The topic is not there or its configuration may not be read (DescribeConfigs), or nobody answers.
    pub(crate) async fn topic_config(&self, topic: &str) -> Result<BTreeMap<String, String>, Error> {
        let topic = topic.to_owned();
        self.ask(move |client| client.config(&format!("reading the configuration of topic {topic}"), &ResourceSpecifier::Topic(&topic)))
            .await
    }

    /// Whether the user of this client may write to a topic.
    ///
    /// # Errors
    /// The topic is not there or may not be described, or nobody answers.
    pub(crate) async fn may_write(&self, topic: &str) -> Result<bool, Error> {
        let topic = topic.to_owned();
        self.ask(move |client| {
            let doing = format!("reading the rights on topic {topic}");
            client.retry(&doing, |timeout| ffi::may_write(client.consumer.client(), &topic, timeout))
        })
        .await
    }

    /// The configuration of one of the brokers by name, such as `transaction.max.timeout.ms`, with defaults.
    ///
    /// # Errors
    /// It may not be read (DescribeConfigs on the cluster), or nobody answers.
    pub(crate) async fn broker_config(&self) -> Result<BTreeMap<String, String>, Error> {
        self.ask(|client| {
            let doing = "reading the configuration of a broker";
            let metadata = client.retry(doing, |timeout| client.consumer.fetch_metadata(None, timeout))?;
            let broker = metadata.brokers().first().map(rdkafka::metadata::MetadataBroker::id);
            let broker = broker.ok_or_else(|| Error::external(format!("{doing}: the cluster names no broker")))?;
            client.config(doing, &ResourceSpecifier::Broker(broker))
        })
        .await
    }

    /// Makes a topic and waits until it is there.
    ///
    /// # Errors
    /// It may not be made, its configuration is refused, or nobody answers.
    pub(crate) async fn create_topic(&self, topic: NewTopic) -> Result<Created, Error> {
        self.ask(move |client| client.create(&topic)).await
    }

    /// Deletes a topic with all that is in it, and waits until it is gone. Returns whether there was one.
    ///
    /// # Errors
    /// It may not be deleted, or nobody answers.
    pub(crate) async fn delete_topic(&self, name: &str) -> Result<bool, Error> {
        let name = name.to_owned();
        self.ask(move |client| client.delete(&name)).await
    }
}

impl Client {
    fn delete(&self, name: &str) -> Result<bool, Error> {
        let doing = format!("deleting topic {name}");
        let admin = self.admin(&doing)?;
        retry(self.context(), &doing, |timeout| {
            let options = AdminOptions::new().request_timeout(Some(timeout)).operation_timeout(Some(timeout));
            let results = futures::executor::block_on(admin.delete_topics(&[name], &options))?;
            match results.into_iter().next() {
                Some(Err((_, Code::UnknownTopicOrPartition))) => Ok(false),
                Some(Err((_, code))) => Err(KafkaError::AdminOp(code)),
                _ => Ok(true),
            }
        })
    }

    fn create(&self, topic: &NewTopic) -> Result<Created, Error> {
        let doing = format!("creating topic {}", topic.name);
        let admin = self.admin(&doing)?;
        let mut new = rdkafka::admin::NewTopic::new(&topic.name, topic.partitions, TopicReplication::Fixed(topic.replicas.unwrap_or(-1)));
        for (name, value) in &topic.config {
            new = new.set(name, value);
        }
        retry(self.context(), &doing, |timeout| {
            let options = AdminOptions::new().request_timeout(Some(timeout)).operation_timeout(Some(timeout));
            let results = futures::executor::block_on(admin.create_topics([&new], &options))?;
            match results.into_iter().next() {
                Some(Err((_, Code::TopicAlreadyExists))) => Ok(Created::Before),
                Some(Err((_, code))) => Err(KafkaError::AdminOp(code)),
                _ => Ok(Created::Now),
            }
        })
    }

    fn config(&self, doing: &str, of: &ResourceSpecifier<'_>) -> Result<BTreeMap<String, String>, Error> {
        let admin = self.admin(doing)?;
        let resource = retry(self.context(), doing, |timeout| described(&admin, of, timeout))?;
        let entries = resource.entries.into_iter();
        Ok(entries.filter_map(|entry| Some((entry.name, entry.value?))).collect())
    }

    /// A client for one question: it has threads and connections of its own, which nobody needs afterwards.
    fn admin(&self, doing: &str) -> Result<AdminClient<Context>, Error> {
        let options = &self.options;
        let admin: KafkaResult<AdminClient<Context>> = options.config().create_with_context(options.context());
        let admin = admin.map_err(|error| error::of(self.context(), doing, &error))?;
        options.set_token(admin.inner())?;
        Ok(admin)
    }
}

fn described(admin: &AdminClient<Context>, of: &ResourceSpecifier<'_>, timeout: Duration) -> KafkaResult<ConfigResource> {
    let options = AdminOptions::new().request_timeout(Some(timeout.min(DEADLINE)));
    let results = futures::executor::block_on(admin.describe_configs([of], &options))?;
    match results.into_iter().next() {
        Some(Ok(resource)) => Ok(resource),
        Some(Err(code)) => Err(KafkaError::AdminOp(code)),
        None => Err(KafkaError::AdminOp(Code::NoEnt)),
    }
}
