//! Grouping of equal rows into classes.

use gangline_allocation::{RowPart, group_rows};

#[test]
fn rows_are_equal_if_all_their_parts_are() {
    let rates = [1, 2, 1, 2, 1, 2, 3, 4];
    let gangs = [1, 1, 2, 1];
    let parts = [
        RowPart {
            words: &rates,
            width: 2,
        },
        RowPart {
            words: &gangs,
            width: 1,
        },
    ];
    let classes = group_rows(&parts, 4);
    assert_eq!(classes.of, [0, 0, 1, 2]);
    assert_eq!(classes.first, [0, 2, 3]);
    assert_eq!(classes.count, [2, 1, 1]);
}

#[test]
fn many_distinct_rows_and_their_copies() {
    let words: Vec<u64> = (0..10_000_u64).map(|word| (word % 2_500) << 40).collect();
    let classes = group_rows(
        &[RowPart {
            words: &words,
            width: 1,
        }],
        words.len(),
    );
    assert_eq!(classes.first.len(), 2_500);
    assert!(classes.count.iter().all(|&count| count == 4));
    assert!((0..10_000).all(|row| classes.of[row] == (row % 2_500) as i64));
}

#[test]
fn an_empty_table_has_no_classes() {
    assert!(
        group_rows(
            &[RowPart {
                words: &[],
                width: 3
            }],
            0
        )
        .of
        .is_empty()
    );
}
