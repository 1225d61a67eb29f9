//! How a command finds its cluster: servers and client properties, from arguments, a file and the environment.

use crate::kafka::{ClientOptions, Properties, Role, Servers};
use crate::telemetry::{self, LogFormat};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What the client calls itself; its log lines name it.
const NAME: &str = "kafka";

/// Where the cluster is, and how to log in.
#[derive(Debug, clap::Args)]
pub(super) struct Connection {
    /// Brokers to begin with, separated by commas.
    #[arg(
        long,
        visible_alias = "bootstrap-server",
        short,
        global = true,
        value_name = "HOST:PORT",
        env = "WATERWHEEL_KAFKA",
        default_value = "localhost:9092"
    )]
    bootstrap_servers: String,
    /// A property of the Kafka client, such as `security.protocol=ssl`; may be repeated.
    #[arg(long = "property", short, global = true, value_name = "NAME=VALUE")]
    properties: Vec<String>,
    /// A file of properties, one a line, `#` before comments: the place for passwords, which others could see on a command line.
    #[arg(long, visible_alias = "command-config", global = true, value_name = "FILE")]
    properties_file: Option<PathBuf>,
}

impl Connection {
    /// The options of a client.
    ///
    /// # Errors
    /// Every fault, a sentence each.
    pub(super) fn check(&self) -> Result<ClientOptions, Vec<String>> {
        let mut properties = match &self.properties_file {
            Some(file) => read(file).map_err(|message| vec![message])?,
            None => BTreeMap::new(),
        };
        let mut wrong = Vec::new();
        for argument in &self.properties {
            match pair(argument) {
                Some((name, value)) => drop(properties.insert(name, value)),
                // What has no `=` may be a secret that slipped into the wrong place.
                None => wrong.push("--property needs NAME=VALUE".to_owned()),
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let servers = Servers::Text(self.bootstrap_servers.clone());
        let checked = ClientOptions::check(NAME, Role::Tool, Some(&servers), &Properties(properties));
        checked.map_err(|faults| faults.iter().map(|fault| format!("{}: {}", argument(&fault.path), fault.message)).collect())
    }
}

/// The argument that a path of the options stands for.
fn argument(path: &str) -> String {
    match path.strip_prefix("/properties/") {
        Some(name) => format!("--property {}", name.replace("~1", "/").replace("~0", "~")),
        None if path == "/properties" => "--property".to_owned(),
        None => format!("--{}", path.trim_start_matches('/')),
    }
}

fn read(file: &Path) -> Result<BTreeMap<String, String>, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("--properties-file {}: {error}", file.display()))?;
    let mut properties = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let pair = pair(line).ok_or_else(|| format!("--properties-file {}: line {} is not NAME=VALUE", file.display(), number + 1))?;
        properties.extend([pair]);
    }
    Ok(properties)
}

fn pair(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    Some((name.trim().to_owned(), value.trim().to_owned()))
}

/// Lets the client's complaints be seen where `WATERWHEEL_LOG` asks for it; without, an error says what matters.
///
/// # Errors
/// `WATERWHEEL_LOG` has no level or directive.
pub(super) fn init_log() -> Result<(), telemetry::LogError> {
    let level = std::env::var("WATERWHEEL_LOG").unwrap_or_else(|_| "error".to_owned());
    telemetry::init(LogFormat::default(), &level)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn connection(properties: &[&str], file: Option<PathBuf>) -> Connection {
        let properties = properties.iter().map(|property| (*property).to_owned()).collect();
        Connection { bootstrap_servers: "localhost:1".to_owned(), properties, properties_file: file }
    }

    #[test]
    fn arguments_win_over_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("client.properties");
        std::fs::write(&file, "# the client\n\nsocket.timeout.ms = 5000\nclient.id=a=b\n").unwrap();
        let options = connection(&["socket.timeout.ms=6000"], Some(file)).check().unwrap();
        assert_eq!((options.get("socket.timeout.ms"), options.get("client.id")), (Some("6000"), Some("a=b")));
        assert_eq!(options.servers(), "localhost:1");
    }

    #[test]
    fn faults_name_the_argument() {
        assert_eq!(connection(&["hunter2"], None).check().unwrap_err(), ["--property needs NAME=VALUE"]);
        let faults = connection(&["linger.mss=1", "enable.auto.commit=true"], None).check().unwrap_err();
        assert!(faults.len() == 2 && faults[1].starts_with("--property linger.mss: the Kafka client knows no property"), "{faults:?}");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("client.properties");
        std::fs::write(&file, "client.id=a\nhunter2\n").unwrap();
        let faults = connection(&[], Some(file)).check().unwrap_err();
        assert!(faults[0].ends_with("client.properties: line 2 is not NAME=VALUE"), "{faults:?}");
    }
}
