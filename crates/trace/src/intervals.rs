//! Sets of times as sorted, disjoint intervals.

/// Start and end (exclusive), ns.
pub type Interval = (i64, i64);

/// A sorted list of disjoint intervals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intervals(Vec<Interval>);

impl Intervals {
    /// The union of intervals in any order.
    pub fn of(intervals: impl IntoIterator<Item = Interval>) -> Self {
        let mut all: Vec<Interval> = intervals.into_iter().filter(|(from, to)| to > from).collect();
        if !all.is_sorted() {
            all.sort_unstable();
        }
        let mut union: Vec<Interval> = Vec::with_capacity(all.len());
        for (from, to) in all {
            match union.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => union.push((from, to)),
            }
        }
        Self(union)
    }

    /// The intervals in ascending order.
    pub fn list(&self) -> &[Interval] {
        &self.0
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Total time covered, ns.
    pub fn length(&self) -> i64 {
        self.0.iter().map(|(from, to)| to - from).sum()
    }

    /// The parts of the intervals within `[from, to)`.
    #[must_use]
    pub fn within(&self, from: i64, to: i64) -> Self {
        let first = self.0.partition_point(|i| i.1 <= from);
        let cut = self.0.iter().skip(first).take_while(|i| i.0 < to);
        Self(cut.map(|i| (i.0.max(from), i.1.min(to))).filter(|i| i.1 > i.0).collect())
    }

    /// Time covered within `[from, to)`, ns.
    pub fn length_within(&self, from: i64, to: i64) -> i64 {
        let first = self.0.partition_point(|i| i.1 <= from);
        let cut = self.0.iter().skip(first).take_while(|i| i.0 < to);
        cut.map(|i| (i.1.min(to) - i.0.max(from)).max(0)).sum()
    }

    /// Those of its intervals that may touch another set's: a few intervals are compared with many thousand.
    fn beside(&self, other: &Self) -> &[Interval] {
        let (Some((from, _)), Some((_, to))) = (other.0.first(), other.0.last()) else { return &[] };
        let first = self.0.partition_point(|i| i.1 <= *from);
        let rest = self.0.get(first..).unwrap_or_default();
        let n = rest.partition_point(|i| i.0 < *to);
        rest.get(..n).unwrap_or_default()
    }

    /// The intersection of both lists.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let (mut a, mut b) = (self.0.iter().peekable(), other.beside(self).iter().peekable());
        let mut both = Vec::new();
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            let (from, to) = (x.0.max(y.0), x.1.min(y.1));
            if to > from {
                both.push((from, to));
            }
            if x.1 < y.1 {
                a.next();
            } else {
                b.next();
            }
        }
        Self(both)
    }

    /// The parts that are in this list and not in the other.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let mut rest = Vec::new();
        let mut others = other.beside(self).iter().peekable();
        for &(from, to) in &self.0 {
            let mut from = from;
            while let Some(&&(other_from, other_to)) = others.peek() {
                if other_to <= from {
                    others.next();
                    continue;
                }
                if other_from >= to {
                    break;
                }
                if other_from > from {
                    rest.push((from, other_from));
                }
                from = other_to;
                if from >= to {
                    break;
                }
            }
            if from < to {
                rest.push((from, to));
            }
        }
        Self(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::Intervals;
    use proptest::prelude::*;

    fn any() -> impl Strategy<Value = Intervals> {
        prop::collection::vec((0_i64..200, 0_i64..30), 0..20)
            .prop_map(|list| Intervals::of(list.into_iter().map(|(from, n)| (from, from + n))))
    }

    proptest! {
        #[test]
        fn parts_are_the_whole(a in any(), b in any(), from in 0_i64..200, n in 0_i64..200) {
            prop_assert_eq!(a.and(&b).length() + a.without(&b).length(), a.length());
            prop_assert_eq!(a.and(&b), b.and(&a));
            prop_assert!(a.without(&b).and(&b).is_empty());
            prop_assert_eq!(a.within(from, from + n).length(), a.length_within(from, from + n));
            prop_assert_eq!(Intervals::of(a.without(&b).list().iter().chain(a.and(&b).list()).copied()), a);
        }
    }
}
