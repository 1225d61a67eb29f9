//! Checks the output: for each user the totals after the first, second, … order, each once, in this order, with the right sum.

use crate::orders::{Order, USERS, order};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Number;
use std::fs;
use std::path::{Path, PathBuf};

/// A line of the output.
#[derive(Deserialize)]
struct Total<'a> {
    key: &'a str,
    count: u64,
    sum: Number,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    /// Lines.
    pub(crate) records: u64,
    /// Totals that are not there.
    pub(crate) missing: u64,
    /// Totals that are there again.
    pub(crate) duplicates: u64,
    /// Lines with another sum than that of the user's first orders, or for an order that there is not.
    pub(crate) wrong_totals: u64,
    /// Lines that stand before an earlier total of their user.
    pub(crate) out_of_order: u64,
}

/// One user: what must come out, and what has come out.
#[derive(Clone, Default)]
struct User {
    /// The sum after each order, in cents.
    sums: Vec<u64>,
    seen: Vec<bool>,
    last: u64,
}

/// Checks all visible files of the folder.
pub(crate) fn output(folder: &Path, orders: u64) -> Result<Checked> {
    let mut users = expected(orders)?;
    let mut checked = Checked::default();
    for file in visible(folder)? {
        let text = fs::read_to_string(&file).with_context(|| format!("{} cannot be read", file.display()))?;
        for line in text.lines() {
            let total: Total<'_> =
                serde_json::from_str(line).with_context(|| format!("a line of {} is no total: {line}", file.display()))?;
            checked.records += 1;
            check(&total, &mut users, &mut checked)?;
        }
    }
    checked.missing = users.iter().flat_map(|user| &user.seen).filter(|seen| !**seen).count() as u64;
    Ok(checked)
}

fn expected(orders: u64) -> Result<Vec<User>> {
    let mut users = vec![User::default(); usize::try_from(USERS)?];
    for number in 0..orders {
        let Order { user, cents } = order(number);
        let user = &mut users[usize::try_from(user)?];
        user.sums.push(user.sums.last().copied().unwrap_or(0) + cents);
        user.seen.push(false);
    }
    Ok(users)
}

fn check(total: &Total<'_>, users: &mut [User], checked: &mut Checked) -> Result<()> {
    let number: Option<usize> = total.key.strip_prefix("user-").and_then(|number| number.parse().ok());
    let user = number.and_then(|number| users.get_mut(number));
    let place = usize::try_from(total.count)?.checked_sub(1);
    let (Some(user), Some(place)) = (user, place) else {
        checked.wrong_totals += 1;
        return Ok(());
    };
    if place >= user.sums.len() || cents(&total.sum.to_string())? != user.sums[place] {
        checked.wrong_totals += 1;
        return Ok(());
    }
    if std::mem::replace(&mut user.seen[place], true) {
        checked.duplicates += 1;
    }
    if total.count < user.last {
        checked.out_of_order += 1;
    }
    user.last = total.count;
    Ok(())
}

/// A decimal number of at most two places, in hundredths.
fn cents(text: &str) -> Result<u64> {
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    if rest.len() > 2 {
        bail!("a sum has more than two decimal places: {text}");
    }
    Ok(whole.parse::<u64>()? * 100 + format!("{rest:0<2}").parse::<u64>()?)
}

/// The files that are not hidden, at any depth, in the order of their names, which is the order of writing for each subtask.
fn visible(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("{} cannot be read", folder.display()))? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            if entry.file_type()?.is_dir() { folders.push(entry.path()) } else { files.push(entry.path()) }
        }
    }
    files.sort();
    Ok(files)
}
