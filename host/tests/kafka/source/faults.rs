//! What goes wrong, and what is said about it.

use super::*;

#[tokio::test]
async fn deleted_records_stop_the_job_and_are_named() {
    let topic = broker().topic("deleted", 2);
    broker().write(&topic, 1, numbers(0..10));
    let source = source(json!({"topics": topic}));
    let splits = source.discover(&BTreeSet::new()).await.unwrap();
    broker().delete_records(&topic, 1, 6);
    let error = Reading::open(&source, splits).await.failure().await;
    let message = error.to_string();
    assert!(
        message.contains(&format!("topic {topic}, partition 1: the records at position 0 were deleted (offsets 6 to 9 are there)")),
        "{message}"
    );
    assert!(message.contains("on-lost-offsets") && !error.retry_helps(), "{message}");
}

#[tokio::test]
async fn deleted_records_are_passed_over_where_that_is_asked_for() {
    for (rule, expected) in [("earliest", vec!["6", "7", "8", "9", "after"]), ("latest", vec!["after"])] {
        let topic = broker().topic("passed-over", 1);
        broker().write(&topic, 0, numbers(0..10));
        let source = source(json!({"topics": topic, "on-lost-offsets": rule}));
        let splits = source.discover(&BTreeSet::new()).await.unwrap();
        broker().delete_records(&topic, 0, 6);
        let mut reading = Reading::open(&source, splits).await;
        if rule == "latest" {
            // Before it is there, what is written now would be passed over as well.
            reading.wait_for("the position is at the end", |reading| reading.positions()[0] >= 10).await;
        }
        broker().write(&topic, 0, ["after"]);
        assert_eq!(reading.until(expected.len()).await.values(), expected, "{rule}");
        assert_eq!(reading.positions(), [11]);
    }
}

#[tokio::test]
async fn a_position_behind_the_end_is_told() {
    let topic = broker().topic("behind", 1);
    broker().write(&topic, 0, numbers(0..3));
    let split = Split { id: format!("{topic}-0"), position: json!(50), stop: None, finished: false };
    let error = Reading::open(&source(json!({"topics": topic})), vec![split]).await.failure().await;
    assert!(error.to_string().contains("the records at position 50 are not there"), "{error}");
    assert!(error.to_string().contains("offsets 0 to 2 are there"), "{error}");
}

#[tokio::test]
async fn a_deleted_topic_is_told() {
    let topic = broker().topic("gone", 1);
    broker().write(&topic, 0, ["a"]);
    let source = source(json!({"topics": topic}));
    let mut reading = Reading::start(&source).await;
    reading.until(1).await;
    broker().delete_topic(&topic);
    let error = reading.failure().await;
    assert!(error.to_string().contains(&format!("topic {topic}, partition 0")) && !error.retry_helps(), "{error}");
    let known = BTreeSet::from([format!("{topic}-0")]);
    let error = source.discover(&known).await.unwrap_err();
    assert!(error.to_string().contains(&format!("topic {topic}")), "{error}");
}

#[tokio::test]
async fn a_wrong_topic_is_told_and_not_made() {
    let topic = format!("absent-{}", std::process::id());
    let error = source(json!({"topics": topic})).discover(&BTreeSet::new()).await.unwrap_err();
    let message = error.to_string();
    assert!(message.contains(&format!("topic {topic}")) && message.contains("has no such topic"), "{message}");
    assert!(!error.retry_helps());
    let topics = broker().tool(&["topics", "--list"]);
    assert!(!topics.contains(&topic), "asking must not make it: {topics}");
}

#[tokio::test]
async fn a_wrong_address_is_told_and_tried_again() {
    // Nobody listens on port 1.
    let source = source(json!({"topics": "a", "bootstrap-servers": "127.0.0.1:1"}));
    let started = std::time::Instant::now();
    let error = source.discover(&BTreeSet::new()).await.unwrap_err();
    let message = error.to_string();
    assert!(message.contains("no broker of 127.0.0.1:1 answers") && message.contains("Connection refused"), "{message}");
    assert!(error.retry_helps());
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

#[tokio::test]
async fn splits_of_another_source_are_refused() {
    let source = source(json!({"topics": "a"}));
    let limits = LIMITS;
    let context = ReaderContext { uid: "in".into(), subtask: 0, parallelism: 1, limits, split_table: SplitTable::default() };
    let mut reader = source.open(context).await.unwrap();
    let split = Split { id: "/var/log/orders@1".into(), position: json!({"offset": 1}), stop: None, finished: false };
    let error = reader.add_splits(vec![split]).await.unwrap_err();
    assert!(error.to_string().contains("no partition of a topic"), "{error}");
    let split = Split { id: "b-0".into(), position: json!(1), stop: None, finished: false };
    let error = reader.add_splits(vec![split]).await.unwrap_err();
    assert!(error.to_string().contains("the position of b-0 of the source in, which reads a now"), "{error}");
}

#[tokio::test]
async fn a_broker_that_goes_away_and_comes_back() {
    let own = Broker::start(&[]);
    own.create_topic("orders", 1, &[]);
    own.write("orders", 0, numbers(0..5));
    let source = source_at(&own, json!({"topics": "orders"}));
    let mut reading = Reading::start(&source).await;
    reading.until(5).await;
    // A moment is bridged.
    own.command("pause");
    tokio::time::sleep(Duration::from_secs(2)).await;
    own.command("resume");
    own.write("orders", 0, numbers(5..8));
    reading.until(8).await;
    // Longer is an error that is worth trying again after.
    own.command("kill");
    let error = reading.failure().await;
    assert!(error.to_string().contains(&format!("no broker of {} answers", own.bootstrap())) && error.retry_helps(), "{error}");
    let positions = reading.reader.positions();
    own.command("restart");
    own.write("orders", 0, ["8"]);
    let mut again = Reading::open(&source, positions).await;
    assert_eq!(again.until(1).await.values(), ["8"]);
}
