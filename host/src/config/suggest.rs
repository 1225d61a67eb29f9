//! What a person may have meant.

/// The candidate that a word is most like, if it is like one at all: a slip or two, or another way to join its parts.
pub fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace(['_', '-', '.', ' '], "");
    let wanted = plain(word);
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&wanted, &plain(candidate)), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len().max(word.len()) / 3).min(3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The sentence for a name that is not known: what is meant, or else what is known.
pub fn unknown<'a>(what: &str, name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let advice = match (closest(name, known.iter().copied()), known.as_slice()) {
        (Some(meant), _) => format!("did you mean {meant:?}?"),
        (None, []) => "there is none".to_owned(),
        (None, known) => format!("known are {}", known.join(", ")),
    };
    format!("unknown {what} {name:?}; {advice}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_slip_and_another_joint_are_found() {
        let known = ["max-records", "linger", "interval"];
        assert_eq!(closest("intervall", known), Some("interval"));
        assert_eq!(closest("maxRecords", known), Some("max-records"));
        assert_eq!(closest("max_records", known), Some("max-records"));
        assert_eq!(closest("uid", known), None);
        assert_eq!(closest("in", ["on"]), None);
    }

    #[test]
    fn what_is_known_is_listed_where_nothing_is_like_it() {
        assert_eq!(unknown("key", "colour", ["path", "format"]), "unknown key \"colour\"; known are path, format");
    }
}
