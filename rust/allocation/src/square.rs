//! Small square matrices; each row stands for one linking row of a program.

use smallvec::{SmallVec, smallvec};

/// A vector with one number for each linking row.
pub(crate) type Links = SmallVec<[f64; 6]>;

/// A square matrix in row-major order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Square {
    size: usize,
    cells: SmallVec<[f64; 36]>,
}

impl Square {
    /// Creates the inverse of a matrix that is given by its columns; returns `None` if the matrix is singular.
    ///
    /// The method is Gaussian elimination with row pivots.
    pub(crate) fn inverse(columns: &[Links]) -> Option<Self> {
        let size = columns.len();
        let mut left = Self::filled(size, |row, column| columns[column][row]);
        let mut inverse = Self::filled(size, |row, column| f64::from(u8::from(row == column)));
        for step in 0..size {
            let larger = |a: usize, b: usize| {
                let is_larger = left.at(b, step).abs() > left.at(a, step).abs();
                if is_larger { b } else { a }
            };
            let pivot = (step..size).reduce(larger)?;
            if left.at(pivot, step).abs() < f64::MIN_POSITIVE {
                return None;
            }
            left.swap(step, pivot);
            inverse.swap(step, pivot);
            let times = 1.0 / left.at(step, step);
            left.scale(step, times);
            inverse.scale(step, times);
            for row in (0..size).filter(|row| *row != step) {
                let times = left.at(row, step);
                if times.abs() > 0.0 {
                    left.subtract(row, times, step);
                    inverse.subtract(row, times, step);
                }
            }
        }
        Some(inverse)
    }

    /// Returns the product of the matrix and a column vector.
    pub(crate) fn times(&self, column: &[f64]) -> Links {
        let rows = self.cells.chunks_exact(self.size);
        rows.map(|row| row.iter().zip(column).map(|(a, b)| a * b).sum())
            .collect()
    }

    /// Returns the product of a row vector and the matrix.
    pub(crate) fn left_times(&self, row: &[f64]) -> Links {
        let mut total: Links = smallvec![0.0; self.size];
        for (cells, times) in self.cells.chunks_exact(self.size).zip(row) {
            for (total, cell) in total.iter_mut().zip(cells) {
                *total += times * cell;
            }
        }
        total
    }

    fn filled(size: usize, of: impl Fn(usize, usize) -> f64) -> Self {
        let rows = 0..size;
        let cells = rows.flat_map(|row| (0..size).map(move |column| (row, column)));
        Self {
            size,
            cells: cells.map(|(row, column)| of(row, column)).collect(),
        }
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        self.cells[row * self.size + column]
    }

    fn swap(&mut self, a: usize, b: usize) {
        for column in 0..self.size {
            self.cells
                .swap(a * self.size + column, b * self.size + column);
        }
    }

    fn scale(&mut self, row: usize, times: f64) {
        let start = row * self.size;
        for cell in &mut self.cells[start..start + self.size] {
            *cell *= times;
        }
    }

    /// Subtracts a multiple of row `other` from row `row`.
    fn subtract(&mut self, row: usize, times: f64, other: usize) {
        for column in 0..self.size {
            let own = self.cells[other * self.size + column];
            self.cells[row * self.size + column] -= times * own;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inverse_by_hand() {
        // The columns (0, 1) and (2, 1) form the matrix [[0, 2], [1, 1]].
        let columns: [Links; 2] = [smallvec![0.0, 1.0], smallvec![2.0, 1.0]];
        let inverse = Square::inverse(&columns).expect("regular");
        assert_eq!(inverse.times(&[4.0, 5.0])[..], [3.0, 2.0]);
        assert_eq!(inverse.left_times(&[2.0, 1.0])[..], [-0.5, 2.0]);
        assert!(Square::inverse(&[smallvec![0.0]]).is_none());
    }
}
