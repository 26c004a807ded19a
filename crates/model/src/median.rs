//! Medians: of an even count, which of the two in the middle, or what lies between them.

use std::cmp::Ordering;

/// A number with a total order.
pub trait Number: Copy {
    /// Which is the larger.
    fn order(&self, other: &Self) -> Ordering;
}

impl Number for i64 {
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

impl Number for f32 {
    fn order(&self, other: &Self) -> Ordering {
        self.total_cmp(other)
    }
}

impl Number for f64 {
    fn order(&self, other: &Self) -> Ordering {
        self.total_cmp(other)
    }
}

/// The median; of two in the middle the upper. None without any number.
///
/// It is the value of one of the numbers, and at least half of them do not exceed it: what is compared with peers is not
/// called odd because it is one of two.
pub fn upper<N: Number>(values: impl IntoIterator<Item = N>) -> Option<N> {
    at(values, |n| n / 2)
}

/// The median; of two in the middle the lower. None without any number.
///
/// For what is usual where late or large values are the exception.
pub fn lower<N: Number>(values: impl IntoIterator<Item = N>) -> Option<N> {
    at(values, |n| n.saturating_sub(1) / 2)
}

/// The median; of two in the middle what lies halfway between them. None without any number.
pub fn between(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.into_iter().collect();
    let low = lower(values.iter().copied())?;
    if values.len() % 2 == 1 { Some(low) } else { Some(f64::midpoint(low, upper(values)?)) }
}

fn at<N: Number>(values: impl IntoIterator<Item = N>, middle: impl Fn(usize) -> usize) -> Option<N> {
    let mut values: Vec<N> = values.into_iter().collect();
    if values.is_empty() {
        return None;
    }
    let middle = middle(values.len());
    Some(*values.select_nth_unstable_by(middle, N::order).1)
}

#[cfg(test)]
mod tests {
    use super::{between, lower, upper};

    #[test]
    fn of_an_even_count_the_three_differ() {
        let four = [4.0, 1.0, 3.0, 2.0];
        assert_eq!((lower(four), between(four), upper(four)), (Some(2.0), Some(2.5), Some(3.0)));
        let three = [9.0, 1.0, 3.0];
        assert_eq!((lower(three), between(three), upper(three)), (Some(3.0), Some(3.0), Some(3.0)));
        assert_eq!((lower([7_i64]), upper([7_i64]), upper::<i64>([])), (Some(7), Some(7), None));
        assert_eq!((lower::<f32>([]), between([])), (None, None));
    }
}
