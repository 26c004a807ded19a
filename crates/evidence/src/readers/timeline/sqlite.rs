//! A reader of SQLite's file format: tables by name, row by row, from bytes in memory.
//!
//! Exports of Nsight Systems need no more: no index, no query, no write-ahead log. Written here rather than taken from
//! SQLite because this crate opens no file, trusts no input and has no code in C; the format is public and frozen
//! (<https://www.sqlite.org/fileformat2.html>). Every walk is bounded by the number of pages.

use std::collections::BTreeMap;

/// The first bytes of a database.
pub(super) const MAGIC: &[u8] = b"SQLite format 3\0";

/// One value of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SqlValue<'a> {
    Null,
    Integer(i64),
    Real(f64),
    Text(&'a [u8]),
    Blob(&'a [u8]),
}

impl SqlValue<'_> {
    pub(super) fn integer(self) -> Option<i64> {
        match self {
            Self::Integer(n) => Some(n),
            Self::Real(x) => Some(x as i64),
            _ => None,
        }
    }

    pub(super) fn text(self) -> Option<String> {
        match self {
            Self::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
            _ => None,
        }
    }
}

/// A database in memory.
pub(super) struct Database<'a> {
    bytes: &'a [u8],
    page_bytes: usize,
    usable_bytes: usize,
    /// Root page and columns of each table.
    tables: BTreeMap<String, (u32, Vec<String>)>,
}

/// A table: its columns and its rows.
pub(super) struct SqlTable<'d, 'a> {
    database: &'d Database<'a>,
    root: u32,
    columns: &'d [String],
}

/// Depth of a tree that no real table reaches.
const MAX_DEPTH: usize = 24;
/// Values of a row that are looked at.
const MAX_COLUMNS: usize = 256;

impl<'a> Database<'a> {
    /// Opens a database; None if its header or its schema cannot be read.
    pub(super) fn open(bytes: &'a [u8]) -> Option<Self> {
        if !bytes.starts_with(MAGIC) {
            return None;
        }
        let page_bytes = match be(bytes, 16, 2)? {
            1 => 65_536,
            n if n.is_power_of_two() && n >= 512 => n as usize,
            _ => return None,
        };
        let usable_bytes = page_bytes.checked_sub(usize::from(*bytes.get(20)?)).filter(|n| *n >= 480)?;
        let mut database = Self { bytes, page_bytes, usable_bytes, tables: BTreeMap::new() };
        let schema = ["type", "name", "tbl_name", "rootpage", "sql"].map(str::to_owned);
        let mut tables = BTreeMap::new();
        database.walk(1, &mut |row| {
            if let [SqlValue::Text(b"table"), name, _, root, sql, ..] = row
                && let (Some(name), Some(root), Some(sql)) = (name.text(), root.integer(), sql.text())
            {
                tables.insert(name, (u32::try_from(root).unwrap_or(0), columns_of(&sql)));
            }
        });
        drop(schema);
        database.tables = tables;
        Some(database)
    }

    /// A table by name.
    pub(super) fn table(&self, name: &str) -> Option<SqlTable<'_, 'a>> {
        let (root, columns) = self.tables.get(name)?;
        Some(SqlTable { database: self, root: *root, columns })
    }

    fn page(&self, number: u32) -> Option<&'a [u8]> {
        let start = (number as usize).checked_sub(1)?.checked_mul(self.page_bytes)?;
        self.bytes.get(start..start.checked_add(self.page_bytes)?)
    }

    /// Visits the rows of the tree at a page, in order of their ids. False if a part of it cannot be read.
    fn walk(&self, root: u32, visit: &mut dyn FnMut(&[SqlValue<'_>])) -> bool {
        let mut budget = self.bytes.len() / self.page_bytes + 1;
        let mut room = Vec::new();
        self.visit(root, 0, &mut budget, &mut room, visit).is_some()
    }

    fn visit(
        &self,
        number: u32,
        depth: usize,
        budget: &mut usize,
        room: &mut Vec<u8>,
        visit: &mut dyn FnMut(&[SqlValue<'_>]),
    ) -> Option<()> {
        *budget = budget.checked_sub(1)?;
        if depth > MAX_DEPTH {
            return None;
        }
        let page = self.page(number)?;
        // The first page begins with the header of the file.
        let head = if number == 1 { 100 } else { 0 };
        let n_cells = be(page, head + 3, 2)? as usize;
        match page.get(head)? {
            5 => {
                for at in 0..n_cells {
                    let cell = be(page, head + 12 + 2 * at, 2)? as usize;
                    self.visit(be(page, cell, 4)? as u32, depth + 1, budget, room, visit)?;
                }
                self.visit(be(page, head + 8, 4)? as u32, depth + 1, budget, room, visit)
            }
            13 => {
                for at in 0..n_cells {
                    let cell = be(page, head + 8 + 2 * at, 2)? as usize;
                    self.leaf(page, cell, room, visit)?;
                }
                Some(())
            }
            _ => None,
        }
    }

    fn leaf(
        &self,
        page: &[u8],
        cell: usize,
        room: &mut Vec<u8>,
        visit: &mut dyn FnMut(&[SqlValue<'_>]),
    ) -> Option<()> {
        let (size, at) = varint(page, cell)?;
        let (row_id, at) = varint(page, at)?;
        let size = usize::try_from(size).ok()?;
        let most = self.usable_bytes - 35;
        if size <= most {
            row(page.get(at..at.checked_add(size)?)?, row_id, visit);
            return Some(());
        }
        // The rest is on pages of its own.
        let least = (self.usable_bytes - 12) * 32 / 255 - 23;
        let here = least + (size - least) % (self.usable_bytes - 4);
        let here = if here > most { least } else { here };
        room.clear();
        room.extend_from_slice(page.get(at..at + here)?);
        let mut next = be(page, at + here, 4)? as u32;
        while room.len() < size && next != 0 {
            let page = self.page(next)?;
            let n = (size - room.len()).min(self.usable_bytes - 4);
            room.extend_from_slice(page.get(4..4 + n)?);
            next = be(page, 0, 4)? as u32;
        }
        row(room, row_id, visit);
        Some(())
    }
}

impl SqlTable<'_, '_> {
    /// Visits all rows with the values of the wanted columns; a column that is not there is null. False if a part of the
    /// table cannot be read.
    pub(super) fn rows<const N: usize>(
        &self,
        wanted: [&str; N],
        mut visit: impl FnMut([SqlValue<'_>; N]),
    ) -> bool {
        let places = wanted.map(|name| self.columns.iter().position(|c| c.eq_ignore_ascii_case(name)));
        self.database.walk(self.root, &mut |row| {
            let value =
                |place: Option<usize>| place.and_then(|at| row.get(at)).copied().unwrap_or(SqlValue::Null);
            visit(places.map(value));
        })
    }

    /// Whether there is a column of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.columns.iter().any(|c| c.eq_ignore_ascii_case(name))
    }
}

/// Decodes a record and hands its values on. A null in the place of an integer primary key is the row's id; exports have
/// such a key only as first column.
fn row(record: &[u8], row_id: u64, visit: &mut dyn FnMut(&[SqlValue<'_>])) {
    let decoded = || -> Option<Vec<SqlValue<'_>>> {
        let (head_bytes, mut at) = varint(record, 0)?;
        let head_bytes = usize::try_from(head_bytes).ok()?;
        let mut body = head_bytes;
        let mut values = Vec::new();
        while at < head_bytes && values.len() < MAX_COLUMNS {
            let (kind, next) = varint(record, at)?;
            at = next;
            let n = match kind {
                1..=4 => kind as usize,
                5 => 6,
                6 | 7 => 8,
                0 | 8 | 9 => 0,
                10 | 11 => return None,
                n => usize::try_from((n - 12) / 2).ok()?,
            };
            let bytes = record.get(body..body.checked_add(n)?)?;
            body += n;
            values.push(match kind {
                0 if values.is_empty() => SqlValue::Integer(row_id as i64),
                0 => SqlValue::Null,
                7 => SqlValue::Real(f64::from_bits(be(bytes, 0, 8)?)),
                8 => SqlValue::Integer(0),
                9 => SqlValue::Integer(1),
                1..=6 => {
                    let unused = 64 - 8 * n as u32;
                    SqlValue::Integer(((be(bytes, 0, n)? << unused) as i64) >> unused)
                }
                n if n % 2 == 0 => SqlValue::Blob(bytes),
                _ => SqlValue::Text(bytes),
            });
        }
        Some(values)
    };
    if let Some(values) = decoded() {
        visit(&values);
    }
}

/// A number of `n` bytes, most significant first.
fn be(bytes: &[u8], at: usize, n: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(n)?)?;
    Some(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// SQLite's number of variable length, and the position behind it.
fn varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut number: u64 = 0;
    for n in 0..9 {
        let byte = *bytes.get(at + n)?;
        if n == 8 {
            return Some((number << 8 | u64::from(byte), at + 9));
        }
        number = number << 7 | u64::from(byte & 0x7f);
        if byte < 0x80 {
            return Some((number, at + n + 1));
        }
    }
    None
}

/// Names of columns in a statement that creates a table.
fn columns_of(sql: &str) -> Vec<String> {
    let Some((_, inner)) = sql.split_once('(') else { return Vec::new() };
    let mut columns = Vec::new();
    let mut depth = 0_u32;
    let mut part = String::new();
    // Comments of an export follow the comma of their line.
    let inner: String =
        inner.lines().map(|line| line.split("--").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    for c in inner.chars() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => break,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                columns.push(std::mem::take(&mut part));
                continue;
            }
            _ => {}
        }
        part.push(c);
    }
    columns.push(part);
    let name = |column: &String| {
        let word = column.split_whitespace().next()?.trim_matches(['"', '`', '[', ']', '\'']);
        let is_rule =
            ["PRIMARY", "FOREIGN", "UNIQUE", "CHECK", "CONSTRAINT"].contains(&word.to_uppercase().as_str());
        (!is_rule).then(|| word.to_owned())
    };
    columns.iter().filter_map(name).take(MAX_COLUMNS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_a_statement() {
        let sql = "CREATE TABLE X (start INTEGER NOT NULL, -- ns\n \"end\" INTEGER, note TEXT DEFAULT('a,b'), PRIMARY KEY(start))";
        assert_eq!(columns_of(sql), ["start", "end", "note"]);
    }

    #[test]
    fn numbers_of_variable_length() {
        assert_eq!(varint(&[0x7f], 0), Some((127, 1)));
        assert_eq!(varint(&[0x81, 0x00], 0), Some((128, 2)));
        assert_eq!(varint(&[0xff; 9], 0), Some((u64::MAX, 9)));
        assert_eq!(varint(&[0x81], 0), None);
    }
}
