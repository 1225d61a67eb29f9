//! The figures, and what they are held against.

use serde_json::{Value, json};
use std::path::Path;

/// All figures of a run.
#[derive(Debug, Default)]
pub(crate) struct Report(Vec<Figure>);

#[derive(Debug)]
struct Figure {
    what: String,
    value: f64,
    unit: &'static str,
    /// The figure should not be above it.
    bound: Option<f64>,
}

impl Report {
    /// Adds a figure, and shows it on the standard error: a run takes minutes.
    pub(crate) fn add(&mut self, what: impl Into<String>, value: f64, unit: &'static str, bound: Option<f64>) {
        let what = what.into();
        eprintln!("{what}: {value:.2} {unit}");
        self.0.push(Figure { what, value, unit, bound });
    }

    /// Prints the table.
    pub(crate) fn print(&self) {
        println!("{:<72} {:>10} {:<18} {:>8}", "what", "measured", "unit", "at most");
        for Figure { what, value, unit, bound } in &self.0 {
            let bound = bound.map_or_else(|| "–".to_owned(), |bound| format!("{bound}"));
            println!("{what:<72} {value:>10.2} {unit:<18} {bound:>8}");
        }
    }

    /// Writes the figures as JSON.
    pub(crate) fn write(&self, file: &Path) {
        let figures: Vec<Value> = self
            .0
            .iter()
            .map(|figure| json!({ "what": figure.what, "value": figure.value, "unit": figure.unit, "at_most": figure.bound }))
            .collect();
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, serde_json::to_string_pretty(&figures).unwrap()).unwrap();
        eprintln!("{}", file.display());
    }
}
