//! The check program: reads the output and computes from the orders alone what must be there.

use crate::orders::{Order, Orders};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

/// A line of the running totals.
#[derive(Clone, Debug, Deserialize)]
struct Total {
    key: String,
    count: u64,
    sum: u64,
}

/// A line of the cleaned orders.
#[derive(Debug, Deserialize)]
struct Cleaned {
    order: u64,
    user: String,
    amount: u64,
    currency: String,
}

/// The visible files of a folder with their content, in the order of their names, which is the order of writing for each subtask.
pub(crate) fn visible(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeMap::new() };
    let files = entries.map(|entry| entry.unwrap().path());
    let shown = |file: &PathBuf| !file.file_name().unwrap().to_string_lossy().starts_with('.');
    files.filter(shown).map(|file| (file.clone(), fs::read(file).unwrap())).collect()
}

/// The lines of the visible files whose name has this text in it, run by run: a key may move to another subtask between two runs.
pub(crate) fn lines(folder: &Path, name_has: &str) -> Vec<String> {
    let mut files: Vec<_> = visible(folder).into_iter().filter(|(path, _)| path.to_string_lossy().contains(name_has)).collect();
    // `…-{subtask}-{generation}-{counter}.{extension}`; the sort is stable.
    files.sort_by_key(|(path, _)| path.to_string_lossy().rsplit('-').nth(1).map(str::to_owned));
    files.into_iter().flat_map(|(_, content)| String::from_utf8(content).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// The first and the last total of each user that a run has shown.
pub(crate) type Shown = HashMap<String, (u64, u64)>;

/// The totals are exact and complete: for each user the totals after the first, second, … order, each once and in this order, each sum that
/// of the one before and the next order of one of the sources.
pub(crate) fn totals(folder: &Path, sources: &[Orders]) {
    let shown = totals_from(folder, "", sources, true);
    assert_complete(&shown, sources);
    assert!(shown.values().all(|(first, _)| *first == 1), "the first totals are missing");
    assert_nothing_hidden(folder);
}

/// Each user's last total is the last one.
pub(crate) fn assert_complete(shown: &Shown, sources: &[Orders]) {
    for (user, orders) in by_user(sources).iter().enumerate() {
        let expected: usize = orders.iter().map(Vec::len).sum();
        let last = shown.get(&format!("user-{user}")).map_or(0, |(_, last)| *last);
        assert_eq!(last, expected as u64, "user-{user} has {expected} orders, and the last total is of order {last}");
    }
}

/// The totals in the files whose name has a text in it are exact from the first one of each user on. With `from_start` sums are checked from the
/// first total, otherwise from the second one that is there.
pub(crate) fn totals_from(folder: &Path, name_has: &str, sources: &[Orders], from_start: bool) -> Shown {
    let users = by_user(sources);
    let mut shown = Shown::new();
    // For each user the sum so far, and how many orders of each source are in it.
    let mut state: HashMap<String, (u64, Vec<usize>)> = HashMap::new();
    for line in lines(folder, name_has) {
        let total: Total = serde_json::from_str(&line).unwrap_or_else(|error| panic!("no total: {line}: {error}"));
        let user: usize = total.key.strip_prefix("user-").and_then(|user| user.parse().ok()).unwrap_or_else(|| panic!("no user: {line}"));
        let before = shown.get(&total.key).map_or(if from_start { 0 } else { total.count - 1 }, |(_, last)| *last);
        assert_eq!(
            total.count,
            before + 1,
            "{line} comes after total {before} of its user: something is missing, repeated or out of order"
        );
        shown.entry(total.key.clone()).or_insert((total.count, 0)).1 = total.count;
        let orders = &users[user];
        match state.get_mut(&total.key) {
            Some((sum, taken)) => {
                let amount = total.sum.checked_sub(*sum).unwrap_or_else(|| panic!("{line} has a smaller sum than the total before"));
                take(orders, taken, amount, &line);
                *sum = total.sum;
            }
            None if from_start => {
                let mut taken = vec![0; orders.len()];
                take(orders, &mut taken, total.sum, &line);
                state.insert(total.key, (total.sum, taken));
            }
            None => {
                // With one source the sum says where it stands.
                assert_eq!(orders.len(), 1, "only a job with one source can be checked from the middle");
                let taken = usize::try_from(total.count).unwrap();
                let sum: u64 = orders[0][..taken].iter().map(|order| order.amount).sum();
                assert_eq!(total.sum, sum, "{line} has a wrong sum");
                state.insert(total.key, (sum, vec![taken]));
            }
        }
    }
    shown
}

/// The amount must be that of the next order of one of the sources.
fn take(orders: &[Vec<Order>], taken: &mut [usize], amount: u64, line: &str) {
    let next = (0..orders.len()).find(|source| orders[*source].get(taken[*source]).is_some_and(|order| order.amount == amount));
    match next {
        Some(source) => taken[source] += 1,
        None => panic!("{line}: it adds {amount}, which is not the next order of its user"),
    }
}

/// The cleaned orders are exact: each order once, and the orders of each user of each source in their order.
pub(crate) fn cleaned(folder: &Path, sources: &[Orders]) {
    let users = by_user(sources);
    let mut taken: HashMap<String, Vec<usize>> = HashMap::new();
    let mut count = 0;
    for line in lines(folder, "") {
        let Cleaned { order, user, amount, currency } =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("no order: {line}: {error}"));
        assert_eq!((amount, currency.as_str()), (1000 + order, "EUR"), "{line}");
        let orders = &users[user.strip_prefix("user-").unwrap().parse::<usize>().unwrap()];
        let taken = taken.entry(user).or_insert_with(|| vec![0; orders.len()]);
        take(orders, taken, amount, &line);
        count += 1;
    }
    let expected: usize = users.iter().flatten().map(Vec::len).sum();
    assert_eq!(count, expected, "cleaned orders are missing");
    assert_nothing_hidden(folder);
}

/// A job that has finished leaves nothing that it did not show.
fn assert_nothing_hidden(folder: &Path) {
    let hidden = |name: &str| name.starts_with('.');
    let left: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).filter(|name| hidden(name)).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

/// For each user the orders of each source.
fn by_user(sources: &[Orders]) -> Vec<Vec<Vec<Order>>> {
    let sources: Vec<_> = sources.iter().map(Orders::by_user).collect();
    (0..sources[0].len()).map(|user| sources.iter().map(|source| source[user].clone()).collect()).collect()
}
