//! Groups equal rows, so that jobs that an allocation cannot distinguish share one set of variables.
//!
//! Rows are equal if their bits are equal. The rows are read once. An open-addressing hash table maps each row to its
//! class number; nothing iterates over this table. The cost is O(rows). Classes are numbered in the order of their
//! first rows.

/// One part of every row, as a row-major table with `width` words per row.
#[derive(Clone, Copy, Debug)]
pub struct RowPart<'a> {
    /// The words of all rows.
    pub words: &'a [u64],
    /// Number of words per row.
    pub width: usize,
}

/// Classes of the rows, numbered in the order of their first rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowClasses {
    /// Class of each row.
    pub of: Vec<i64>,
    /// First row of each class.
    pub first: Vec<i64>,
    /// Number of rows in each class.
    pub count: Vec<i64>,
}

const EMPTY: u32 = u32::MAX;

/// Groups rows whose parts are all equal.
///
/// # Panics
/// Panics if a part does not have `rows` rows.
///
/// # Examples
/// ```
/// use gangline_allocation::{RowPart, group_rows};
/// let parts = [RowPart { words: &[7, 7, 1, 2, 7, 7], width: 2 }];
/// let classes = group_rows(&parts, 3);
/// assert_eq!((classes.of, classes.first, classes.count), (vec![0, 1, 0], vec![0, 1], vec![2, 1]));
/// ```
pub fn group_rows(parts: &[RowPart<'_>], rows: usize) -> RowClasses {
    for part in parts {
        assert_eq!(part.words.len(), rows * part.width, "whole rows");
    }
    let mask = (2 * rows).next_power_of_two().max(2) - 1;
    let mut table = vec![EMPTY; mask + 1];
    let mut classes = RowClasses {
        of: Vec::with_capacity(rows),
        first: Vec::new(),
        count: Vec::new(),
    };
    for row in 0..rows {
        let mut slot = digest(parts, row) as usize & mask;
        let class = loop {
            let class = table[slot];
            if class == EMPTY {
                table[slot] = classes.first.len() as u32;
                classes.first.push(row as i64);
                classes.count.push(0);
                break classes.first.len() - 1;
            }
            let first = classes.first[class as usize] as usize;
            if parts.iter().all(|part| part.row(first) == part.row(row)) {
                break class as usize;
            }
            slot = (slot + 1) & mask;
        };
        classes.of.push(class as i64);
        classes.count[class] += 1;
    }
    classes
}

impl<'a> RowPart<'a> {
    fn row(&self, row: usize) -> &'a [u64] {
        &self.words[row * self.width..(row + 1) * self.width]
    }
}

/// Returns the hash of a row; the constant is the 64-bit golden ratio.
fn digest(parts: &[RowPart<'_>], row: usize) -> u64 {
    let mut digest = 0_u64;
    for word in parts.iter().flat_map(|part| part.row(row)) {
        digest = (digest ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        digest ^= digest >> 32;
    }
    digest
}
