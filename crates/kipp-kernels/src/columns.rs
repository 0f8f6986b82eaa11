//! A window of columns of a row-major matrix, for several writers at once: what `split_at_mut` is to a slice.

#![allow(unsafe_code)]

use std::marker::PhantomData;

/// Exclusive access to columns `first .. first + width` of some rows of a row-major f32 matrix.
///
/// Windows that come from one matrix by splitting never overlap, so each may go to a thread of its own.
pub struct Columns<'a> {
    /// The first value of the window's first row.
    start: *mut f32,
    /// Values from one row to the next.
    stride: usize,
    rows: usize,
    width: usize,
    matrix: PhantomData<&'a mut [f32]>,
}

// SAFETY: a window is the only access to its values, as `&mut [f32]` is, and f32 may move between threads.
unsafe impl Send for Columns<'_> {}
// SAFETY: a shared window hands out no access to values.
unsafe impl Sync for Columns<'_> {}

impl<'a> Columns<'a> {
    /// All of a matrix, `[data.len() / width, width]`; values after the last whole row are not part of it.
    pub fn new(data: &'a mut [f32], width: usize) -> Columns<'a> {
        let rows = data.len().checked_div(width).unwrap_or(0);
        Columns { start: data.as_mut_ptr(), stride: width, rows, width, matrix: PhantomData }
    }

    /// Rows of the window.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of the window.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The columns before `column` and those from it on.
    ///
    /// # Panics
    /// If there are fewer columns.
    pub fn split_columns_at(self, column: usize) -> (Self, Self) {
        assert!(column <= self.width, "column {column} of a window of {}", self.width);
        let Columns { start, stride, rows, width, matrix } = self;
        // SAFETY: with no row the offset is zero; else `column` is at most the width, which lies inside the row.
        let right = unsafe { start.add(if rows == 0 { 0 } else { column }) };
        let left = Columns { start, stride, rows, width: column, matrix };
        (left, Columns { start: right, stride, rows, width: width - column, matrix })
    }

    /// The rows before `row` and those from it on.
    ///
    /// # Panics
    /// If there are fewer rows.
    pub fn split_rows_at(self, row: usize) -> (Self, Self) {
        assert!(row <= self.rows, "row {row} of a window of {}", self.rows);
        let Columns { start, stride, rows, width, matrix } = self;
        // The end of the last row of a narrow window may lie outside the matrix: an empty rest starts nowhere.
        let offset = if row == rows { 0 } else { row * stride };
        // SAFETY: the offset is zero or that of an existing row, which lies inside the matrix.
        let below = unsafe { start.add(offset) };
        let above = Columns { start, stride, rows: row, width, matrix };
        (above, Columns { start: below, stride, rows: rows - row, width, matrix })
    }

    /// The window's part of a row, `[width]`.
    ///
    /// # Panics
    /// If there are fewer rows.
    #[inline(always)]
    pub fn row_mut(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.rows, "row {row} of a window of {}", self.rows);
        // SAFETY: `row` is one of the window's rows, whose `width` values lie inside the matrix, and splitting left
        // this window the only one that holds them.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.stride), self.width) }
    }

    /// The same window for a shorter time.
    pub fn reborrow(&mut self) -> Columns<'_> {
        let Columns { start, stride, rows, width, .. } = *self;
        Columns { start, stride, rows, width, matrix: PhantomData }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_reach_their_own_values_and_no_others() {
        let mut data = [0.0f32; 15];
        let all = Columns::new(&mut data, 5);
        assert_eq!((all.rows(), all.width()), (3, 5));
        let (left, right) = all.split_columns_at(2);
        let (mut top, mut bottom) = left.split_rows_at(1);
        let mut right = right;
        std::thread::scope(|scope| {
            scope.spawn(|| top.row_mut(0).fill(1.0));
            scope.spawn(|| (0..2).for_each(|row| bottom.row_mut(row).fill(2.0)));
            scope.spawn(|| (0..3).for_each(|row| right.row_mut(row).fill(3.0 + row as f32)));
        });
        assert_eq!(data, [1.0, 1.0, 3.0, 3.0, 3.0, 2.0, 2.0, 4.0, 4.0, 4.0, 2.0, 2.0, 5.0, 5.0, 5.0]);
    }

    #[test]
    fn empty_windows_are_fine() {
        let mut data = [0.0f32; 6];
        let (rest, none) = Columns::new(&mut data, 3).split_columns_at(3);
        assert_eq!((none.rows(), none.width()), (2, 0));
        let (_, mut last) = none.split_rows_at(1);
        assert!(last.row_mut(0).is_empty());
        let (_, below) = rest.split_rows_at(2);
        assert_eq!(below.rows(), 0);
        let (left, right) = Columns::new(&mut [], 4).split_columns_at(2);
        assert_eq!((left.rows(), right.width()), (0, 2));
        assert_eq!(Columns::new(&mut [1.0], 0).rows(), 0);
    }

    #[test]
    #[should_panic(expected = "row 2")]
    fn a_row_outside_is_refused() {
        Columns::new(&mut [0.0; 6], 3).row_mut(2);
    }
}
