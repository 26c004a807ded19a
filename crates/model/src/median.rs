//! Medians. They differ for an even count: the upper or the lower middle value, or the mean of both.

use std::cmp::Ordering;

/// A number with a total order.
pub trait TotalOrder: Copy {
    /// Compares two numbers.
    fn order(&self, other: &Self) -> Ordering;
}

impl TotalOrder for i64 {
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

impl TotalOrder for f32 {
    fn order(&self, other: &Self) -> Ordering {
        self.total_cmp(other)
    }
}

impl TotalOrder for f64 {
    fn order(&self, other: &Self) -> Ordering {
        self.total_cmp(other)
    }
}

/// The median; of two middle values the upper one. None if there are no values.
///
/// It is one of the values, and at least half of the values do not exceed it, so neither of two peers counts
/// as odd.
pub fn upper<N: TotalOrder>(values: impl IntoIterator<Item = N>) -> Option<N> {
    at(values, |n| n / 2)
}

/// The median; of two middle values the lower one. None if there are no values.
///
/// For usual values where late or large values are the exception.
pub fn lower<N: TotalOrder>(values: impl IntoIterator<Item = N>) -> Option<N> {
    at(values, |n| n.saturating_sub(1) / 2)
}

/// The median; of two middle values their mean. None if there are no values.
pub fn between(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.into_iter().collect();
    let low = lower(values.iter().copied())?;
    if values.len() % 2 == 1 { Some(low) } else { Some(f64::midpoint(low, upper(values)?)) }
}

fn at<N: TotalOrder>(values: impl IntoIterator<Item = N>, middle: impl Fn(usize) -> usize) -> Option<N> {
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
