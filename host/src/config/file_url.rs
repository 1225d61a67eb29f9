//! `file://` URLs that mean another thing than they say.

/// What is wrong with a `file://` URL whose first part would be the name of a machine, and what to write; none if it is right or no such URL.
pub(crate) fn relative(url: &str) -> Option<String> {
    let path = url.strip_prefix("file://")?;
    if path.starts_with('/') || path.starts_with("localhost/") {
        return None;
    }
    Some(match path {
        "" => "file:// names no folder: write file:///path/of/a/folder, or a path".to_owned(),
        path => format!(
            "{url:?} has no absolute path: write file:///{path} for the folder /{path}, or {path} without file:// for one in the working directory"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_urls_without_an_absolute_path_are_wrong() {
        for right in ["file:///x/y", "file://localhost/x", "x/y", "/x", "memory://"] {
            assert_eq!(relative(right), None, "{right}");
        }
        let sentence = relative("file://x/y").unwrap_or_default();
        assert!(sentence.contains("write file:///x/y") && sentence.contains("or x/y without"), "{sentence}");
        assert!(relative("file://").is_some());
    }
}
