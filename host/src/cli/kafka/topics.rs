//! `waterwheel kafka topics list|create|delete`

use super::Outcome;
use crate::Error;
use crate::kafka::ClientOptions;
use crate::kafka::Cluster;
use crate::kafka::cluster::{Created, NewTopic};
use std::fmt::Write;

/// What to do with topics.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// The topics, with their partitions and copies.
    List,
    /// Creates a topic; one that exists is left as it is, and said so.
    Create {
        /// Its name.
        name: String,
        /// How many partitions.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..))]
        partitions: i32,
        /// Copies of each partition; by default what the brokers say.
        #[arg(long, value_parser = clap::value_parser!(i32).range(1..))]
        replication_factor: Option<i32>,
        /// A setting of the topic, such as `cleanup.policy=compact`; may be repeated.
        #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
        config: Vec<(String, String)>,
        /// Begin with an empty topic: delete the one that exists first.
        #[arg(long)]
        replace: bool,
    },
    /// Deletes topics with all that is in them.
    Delete {
        /// Their names.
        #[arg(required = true)]
        names: Vec<String>,
        /// Say nothing of topics that do not exist.
        #[arg(long)]
        if_exists: bool,
    },
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Runs the command.
pub(super) async fn run(command: &Command, options: &ClientOptions) -> Outcome {
    let cluster = Cluster::new(options)?;
    match command {
        Command::List => list(&cluster).await,
        Command::Create { name, partitions, replication_factor, config, replace } => {
            let topic = NewTopic { name: name.clone(), partitions: *partitions, replicas: *replication_factor, config: config.clone() };
            create(&cluster, topic, *replace).await
        }
        Command::Delete { names, if_exists } => delete(&cluster, names, *if_exists).await,
    }
}

async fn list(cluster: &Cluster) -> Outcome {
    let topics = cluster.all_topics().await?;
    let width = topics.iter().map(|topic| topic.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for topic in &topics {
        let partitions = count(topic.partitions, "partition");
        let copies = if topic.replicas == 1 { "1 copy".to_owned() } else { format!("{} copies", topic.replicas) };
        // Writing to a text cannot fail.
        let _written = writeln!(text, "{:width$}  {partitions}, {copies}", topic.name);
    }
    Ok(text)
}

async fn create(cluster: &Cluster, topic: NewTopic, replace: bool) -> Outcome {
    let (name, partitions) = (topic.name.clone(), count(topic.partitions, "partition"));
    if replace {
        cluster.delete_topic(&name).await?;
    }
    match cluster.create_topic(topic).await? {
        Created::Now => Ok(format!("created {name} with {partitions}\n")),
        Created::Before if replace => Err(Error::external(format!("topic {name} was created by somebody else meanwhile"))),
        Created::Before => Ok(format!("{name} exists already and is left as it is\n")),
    }
}

async fn delete(cluster: &Cluster, names: &[String], if_exists: bool) -> Outcome {
    let mut text = String::new();
    for name in names {
        if cluster.delete_topic(name).await? {
            let _written = writeln!(text, "deleted {name}");
        } else if !if_exists {
            // What was done is said although the command fails.
            crate::cli::say(text.trim_end());
            return Err(Error::user(format!("there is no topic {name} on {}", cluster.servers())));
        }
    }
    Ok(text)
}

fn count(number: i32, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}
