//! The columns of a window: what is kept of each, and what comes of it.

use std::fmt;
use std::fmt::Write;

use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use smallvec::SmallVec;
use waterwheel_plugin::decimal::Decimal;
use waterwheel_plugin::{Aggregate, Failure, MapState, Window, fail};

use crate::config::Function;

/// The values of distinct counts, by the number of the window: the number of the column, `:`, the value.
pub(crate) type Distinct = MapState<(i64, String), bool>;

/// All columns of windows.
#[derive(Debug)]
pub(crate) struct Columns {
    /// Function and, unless it counts records, the number of its field.
    pub(crate) columns: Vec<(Function, Option<usize>)>,
    /// `,"NAME":` of each column.
    pub(crate) names: Vec<String>,
    pub(crate) distinct: Distinct,
    /// A subkey of it, so that it is not allocated for each record.
    pub(crate) subkey: String,
}

/// What a record has at the fields. Used again for the next one.
#[derive(Debug, Default)]
pub(crate) struct Row {
    pub(crate) timestamp: i64,
    pub(crate) fields: Vec<Field>,
}

/// What is at a field: no text where there is nothing, or null.
#[derive(Debug, Default)]
pub(crate) struct Field {
    pub(crate) text: String,
    pub(crate) number: Option<Decimal>,
}

/// What is kept of a window.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// What its distinct values are stored under.
    id: i64,
    cells: Cells,
}

/// What is kept of each column. Four are copied without allocating.
#[derive(Debug, Clone)]
pub(crate) struct Cells(SmallVec<[Cell; 4]>);

/// What is kept of a column.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Cell {
    /// Of records, of values, of distinct values.
    Count(u64),
    /// A sum and of how many, for `sum` and `avg`.
    Sum(Decimal, u64),
    /// The least or greatest.
    Number(Option<Decimal>),
    /// The first or last, as it is written, and its event time.
    Text(Option<(i64, String)>),
}

impl Cell {
    fn of(function: Function) -> Self {
        match function {
            Function::Count | Function::CountDistinct => Self::Count(0),
            Function::Sum | Function::Avg => Self::Sum(Decimal::default(), 0),
            Function::Min | Function::Max => Self::Number(None),
            Function::First | Function::Last => Self::Text(None),
        }
    }
}

impl Columns {
    /// Whether the window does not have the value yet, which it then has.
    fn is_new(&mut self, id: i64, column: usize, field: &Field) -> Result<bool, Failure> {
        self.subkey.clear();
        match field.number {
            Some(number) => write!(self.subkey, "{column}:{number}")?,
            None => write!(self.subkey, "{column}:{}", field.text)?,
        }
        Ok(self.insert(id))
    }

    fn insert(&mut self, id: i64) -> bool {
        let subkey = (id, std::mem::take(&mut self.subkey));
        let is_new = !self.distinct.contains(&subkey);
        if is_new {
            self.distinct.insert(&subkey, true);
        }
        self.subkey = subkey.1;
        is_new
    }

    /// Adds up what two windows have in a column, but for distinct values.
    fn merge_cell(function: Function, cell: &mut Cell, other: Cell) -> Result<(), Failure> {
        match (cell, other) {
            (Cell::Count(count), Cell::Count(more)) => *count += more,
            (Cell::Sum(sum, count), Cell::Sum(more, of)) => (*sum, *count) = (add(*sum, more)?, *count + of),
            (Cell::Number(number), Cell::Number(Some(other))) => {
                *number = Some(number.map_or(other, |number| chosen(function, number, other)))
            }
            (Cell::Text(text), Cell::Text(Some(other))) => take_text(function, text, other.0, |into| *into = other.1),
            (Cell::Number(_), Cell::Number(None)) | (Cell::Text(_), Cell::Text(None)) => {}
            _ => return Err(other_configuration()),
        }
        Ok(())
    }

    fn write_column(&self, column: usize, kept: &Kept, out: &mut String) -> Result<(), Failure> {
        match (&self.columns[column].0, &kept.cells.0[column]) {
            (_, Cell::Count(count)) => write!(out, "{count}")?,
            (_, Cell::Sum(_, 0)) | (_, Cell::Number(None)) | (_, Cell::Text(None)) => write!(out, "null")?,
            (Function::Avg, Cell::Sum(sum, count)) => {
                write!(out, "{}", sum.checked_div(*count).ok_or_else(|| fail("the average has more than 38 digits"))?)?;
            }
            (_, Cell::Sum(sum, _)) => write!(out, "{sum}")?,
            (_, Cell::Number(Some(number))) => write!(out, "{number}")?,
            (_, Cell::Text(Some((_, text)))) => write!(out, "{text}")?,
        }
        Ok(())
    }
}

fn add(sum: Decimal, number: Decimal) -> Result<Decimal, Failure> {
    sum.checked_add(number).ok_or_else(|| fail("the sum has more than 38 digits"))
}

fn chosen(function: Function, number: Decimal, other: Decimal) -> Decimal {
    if function == Function::Min { number.min(other) } else { number.max(other) }
}

/// Takes a text over if it is before (after) what is there.
fn take_text(function: Function, text: &mut Option<(i64, String)>, timestamp: i64, take: impl FnOnce(&mut String)) {
    let (at, into) = match text {
        None => text.insert((timestamp, String::new())),
        Some(found) => {
            let is_taken = if function == Function::First { timestamp < found.0 } else { timestamp >= found.0 };
            if !is_taken {
                return;
            }
            found
        }
    };
    *at = timestamp;
    take(into);
}

fn other_configuration() -> Failure {
    fail("the state was written with other aggregates: start the operator with another uid, or without its state")
}

impl Aggregate for Columns {
    type Input = Row;
    type Accumulator = Kept;
    /// The members of the result.
    type Output = String;

    fn create(&mut self, window: Window) -> Kept {
        Kept { id: window.start, cells: Cells(self.columns.iter().map(|(function, _)| Cell::of(*function)).collect()) }
    }

    fn add(&mut self, kept: &mut Kept, row: &Row) -> Result<(), Failure> {
        if kept.cells.0.len() != self.columns.len() {
            return Err(other_configuration());
        }
        for index in 0..self.columns.len() {
            let (function, field) = self.columns[index];
            let cell = &mut kept.cells.0[index];
            let Some(field) = field.map(|field| &row.fields[field]) else {
                Self::merge_cell(function, cell, Cell::Count(1))?;
                continue;
            };
            if field.text.is_empty() {
                continue;
            }
            match (function, &mut *cell) {
                (Function::CountDistinct, Cell::Count(count)) => *count += u64::from(self.is_new(kept.id, index, field)?),
                (Function::Count, Cell::Count(count)) => *count += 1,
                (_, Cell::Text(text)) => take_text(function, text, row.timestamp, |into| {
                    into.clear();
                    into.push_str(&field.text);
                }),
                (Function::Sum | Function::Avg, _) => Self::merge_cell(function, cell, Cell::Sum(field.number.unwrap_or_default(), 1))?,
                _ => Self::merge_cell(function, cell, Cell::Number(field.number))?,
            }
        }
        Ok(())
    }

    fn merge(&mut self, kept: &mut Kept, other: Kept) -> Result<(), Failure> {
        if kept.cells.0.len() != self.columns.len() || other.cells.0.len() != self.columns.len() {
            return Err(other_configuration());
        }
        let mut values = Vec::new();
        self.distinct.for_each_of(&other.id, |value, _| values.push(value));
        self.distinct.remove_all_of(&other.id);
        for value in values {
            let column = value.split_once(':').and_then(|(column, _)| column.parse::<usize>().ok());
            self.subkey = value;
            if let (true, Some(Cell::Count(count))) = (self.insert(kept.id), column.and_then(|column| kept.cells.0.get_mut(column))) {
                *count += 1;
            }
        }
        for ((function, _), (cell, other)) in self.columns.iter().zip(kept.cells.0.iter_mut().zip(other.cells.0)) {
            if *function != Function::CountDistinct {
                Self::merge_cell(*function, cell, other)?;
            }
        }
        Ok(())
    }

    fn result(&self, kept: &Kept) -> Result<String, Failure> {
        if kept.cells.0.len() != self.columns.len() {
            return Err(other_configuration());
        }
        let mut result = String::with_capacity(self.columns.len() * 32);
        for (column, name) in self.names.iter().enumerate() {
            result.push_str(name);
            self.write_column(column, kept, &mut result)?;
        }
        Ok(result)
    }

    fn clear(&mut self, kept: Kept) {
        self.distinct.remove_all_of(&kept.id);
    }
}

impl Serialize for Cells {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.0)
    }
}

impl<'de> Deserialize<'de> for Cells {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Cells;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list of columns")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Cells, A::Error> {
                let mut cells = SmallVec::new();
                while let Some(cell) = list.next_element()? {
                    cells.push(cell);
                }
                Ok(Cells(cells))
            }
        }
        deserializer.deserialize_seq(List)
    }
}
