//! The two questions about transactions that librdkafka cannot ask: which ids there are, and what is open under them. Asked over a
//! [`connection`] of our own, with TLS and a login as the client's properties say.

mod connection;
mod login;
#[cfg(feature = "kafka-tls")]
mod tls;

use super::ClientOptions;
use crate::Error;
use connection::Connection;
use std::time::Duration;

/// Kafka's number of the request `ListTransactions`.
const LIST: i16 = 66;
/// Kafka's number of the request `DescribeTransactions`.
const DESCRIBE: i16 = 65;
/// How long a broker may take for everything.
const DEADLINE: Duration = Duration::from_secs(10);
/// A transactional id as its coordinator knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TransactionState {
    /// The id.
    pub(crate) id: String,
    /// `Ongoing`, `PrepareCommit`, `CompleteCommit`, `Empty`, …
    pub(crate) state: String,
    /// After this time the coordinator aborts it.
    pub(crate) timeout: Duration,
    /// When it was begun, milliseconds since the Unix epoch; none when none is open.
    pub(crate) since: Option<i64>,
    /// The producer.
    pub(crate) producer_id: i64,
    /// How often the id was taken over.
    pub(crate) producer_epoch: i16,
    /// What it has written to: topic and partition.
    pub(crate) partitions: Vec<(String, i32)>,
}

/// The transactional ids that a broker coordinates and that `wanted` holds of, by id.
///
/// # Errors
/// The broker does not answer, or refuses the login.
pub(crate) async fn transactions(
    options: &ClientOptions,
    address: &str,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<TransactionState>, Error> {
    let asked = tokio::time::timeout(DEADLINE, ask(options, address, wanted)).await;
    let failed = |reason: String| {
        let reason = options.secrets().hide(&reason);
        Error::external(format!("the broker {address} does not say which transactions are open: {reason}"))
    };
    asked.map_err(|_| failed(format!("no answer after {DEADLINE:?}")))?.map_err(failed)
}

async fn ask(options: &ClientOptions, address: &str, wanted: impl Fn(&str) -> bool) -> Result<Vec<TransactionState>, String> {
    let mut connection = Connection::open(options, address).await?;
    // No filter of states, none of producers.
    let list = connection.exchange(&request(LIST, &[1, 1, 0])).await?;
    let mut ids: Vec<String> = parse_list(&list)?.into_iter().filter(|id| wanted(id)).collect();
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    ids.sort();
    let mut body = Vec::new();
    put_length(&mut body, ids.len());
    for id in &ids {
        put_length(&mut body, id.len());
        body.extend_from_slice(id.as_bytes());
    }
    body.push(0);
    let mut states = parse_descriptions(&connection.exchange(&request(DESCRIBE, &body)).await?)?;
    states.sort_by(|left, right| left.id.cmp(&right.id));
    Ok(states)
}

/// A request of version 0, with the flexible header.
fn request(key: i16, body: &[u8]) -> Vec<u8> {
    let mut request = connection::header(key, 0);
    request.push(0);
    request.extend_from_slice(body);
    request
}

fn parse_list(answer: &[u8]) -> Result<Vec<String>, String> {
    let mut answer = Answer::begin(answer)?;
    answer.code()?;
    // Filters that it does not know: we have none.
    for _ in 0..answer.length()? {
        answer.text()?;
    }
    let mut ids = Vec::new();
    for _ in 0..answer.length()? {
        ids.push(answer.text()?);
        answer.i64()?;
        answer.text()?;
        answer.tags()?;
    }
    Ok(ids)
}

fn parse_descriptions(answer: &[u8]) -> Result<Vec<TransactionState>, String> {
    let mut answer = Answer::begin(answer)?;
    let mut states = Vec::new();
    for _ in 0..answer.length()? {
        answer.code()?;
        let (id, state) = (answer.text()?, answer.text()?);
        let timeout = Duration::from_millis(u64::try_from(answer.i32()?).unwrap_or(0));
        let began = answer.i64()?;
        // What is over keeps its time.
        let is_open = state == "Ongoing" || state.starts_with("Prepare");
        let since = (is_open && began >= 0).then_some(began);
        let (producer_id, producer_epoch) = (answer.i64()?, answer.i16()?);
        let mut partitions = Vec::new();
        for _ in 0..answer.length()? {
            let topic = answer.text()?;
            for _ in 0..answer.length()? {
                partitions.push((topic.clone(), answer.i32()?));
            }
            answer.tags()?;
        }
        answer.tags()?;
        states.push(TransactionState { id, state, timeout, since, producer_id, producer_epoch, partitions });
    }
    Ok(states)
}

/// A length as compact texts and arrays have it: one more than it is, in groups of seven bits.
#[allow(clippy::cast_possible_truncation, reason = "seven bits are left each time")]
fn put_length(out: &mut Vec<u8>, length: usize) {
    let mut rest = length + 1;
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// The rest of an answer.
struct Answer<'a>(&'a [u8]);

impl<'a> Answer<'a> {
    /// Behind the header and the time for which the broker wants to be left alone.
    fn begin(answer: &'a [u8]) -> Result<Self, String> {
        let mut rest = Self(answer);
        rest.i32()?;
        rest.tags()?;
        rest.i32()?;
        Ok(rest)
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or("its answer ends too soon")?;
        self.0 = rest;
        Ok(taken)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], String> {
        self.take(N)?.try_into().map_err(|_| "its answer ends too soon".to_owned())
    }

    fn i16(&mut self) -> Result<i16, String> {
        self.number().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> Result<i32, String> {
        self.number().map(i32::from_be_bytes)
    }

    fn i64(&mut self) -> Result<i64, String> {
        self.number().map(i64::from_be_bytes)
    }

    fn code(&mut self) -> Result<(), String> {
        match self.i16()? {
            0 => Ok(()),
            code @ (31 | 53) => Err(format!("the right (ACL) Describe on transactional ids is missing (error {code})")),
            code @ (14..=16) => Err(format!("it is still reading them: try again (error {code})")),
            35 => Err("it is too old to be asked: Kafka can be since 3.0".to_owned()),
            105 => Err("an id has gone meanwhile: try again".to_owned()),
            code => Err(format!("it answers with error {code}")),
        }
    }

    fn varint(&mut self) -> Result<usize, String> {
        let mut value = 0_usize;
        for shift in (0..35).step_by(7) {
            let [byte] = self.number::<1>()?;
            value |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("its answer has a number that is none".to_owned())
    }

    /// The length of a compact text or array; of a null one 0.
    fn length(&mut self) -> Result<usize, String> {
        Ok(self.varint()?.saturating_sub(1))
    }

    fn text(&mut self) -> Result<String, String> {
        let length = self.length()?;
        String::from_utf8(self.take(length)?.to_vec()).map_err(|error| error.to_string())
    }

    fn tags(&mut self) -> Result<(), String> {
        for _ in 0..self.varint()? {
            self.varint()?;
            let length = self.varint()?;
            self.take(length)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn text(out: &mut Vec<u8>, text: &str) {
        put_length(out, text.len());
        out.extend_from_slice(text.as_bytes());
    }

    /// Correlation, tags, throttling.
    const HEADER: [u8; 9] = [0, 0, 0, 7, 0, 0, 0, 0, 0];

    #[test]
    fn lengths_come_back() {
        for length in [0, 1, 126, 127, 128, 16_382, 16_383, 1 << 20] {
            let mut bytes = Vec::new();
            put_length(&mut bytes, length);
            assert_eq!(Answer(&bytes).length().unwrap(), length);
        }
    }

    #[test]
    fn a_list_is_read() {
        let mut answer = HEADER.to_vec();
        answer.extend_from_slice(&[0, 0, 1]);
        put_length(&mut answer, 2);
        for id in ["p-0", "p-1"] {
            text(&mut answer, id);
            answer.extend_from_slice(&9_i64.to_be_bytes());
            text(&mut answer, "Ongoing");
            answer.push(0);
        }
        answer.push(0);
        assert_eq!(parse_list(&answer).unwrap(), ["p-0", "p-1"]);
        assert!(parse_list(&answer[..answer.len() - 3]).unwrap_err().contains("ends too soon"));
    }

    #[test]
    fn descriptions_are_read() {
        let mut answer = HEADER.to_vec();
        put_length(&mut answer, 1);
        answer.extend_from_slice(&[0, 0]);
        text(&mut answer, "p-0");
        text(&mut answer, "Ongoing");
        answer.extend_from_slice(&60_000_i32.to_be_bytes());
        answer.extend_from_slice(&1_700_000_000_000_i64.to_be_bytes());
        answer.extend_from_slice(&17_i64.to_be_bytes());
        answer.extend_from_slice(&3_i16.to_be_bytes());
        put_length(&mut answer, 1);
        text(&mut answer, "out");
        put_length(&mut answer, 2);
        answer.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0]);
        let expected = TransactionState {
            id: "p-0".to_owned(),
            state: "Ongoing".to_owned(),
            timeout: Duration::from_secs(60),
            since: Some(1_700_000_000_000),
            producer_id: 17,
            producer_epoch: 3,
            partitions: vec![("out".to_owned(), 0), ("out".to_owned(), 4)],
        };
        assert_eq!(parse_descriptions(&answer).unwrap(), [expected]);
    }

    #[test]
    fn refusals_are_said() {
        let mut answer = HEADER.to_vec();
        answer.extend_from_slice(&53_i16.to_be_bytes());
        assert!(parse_list(&answer).unwrap_err().contains("Describe on transactional ids"));
    }
}
