//! What one dump leaves to the next: ranks of one job make the same calls from the same places and repeat the same lists
//! of ranks, so most tables of a dump are those of the dump before, to the letter. They are compared as they are built,
//! and shared if they turn out equal. What a dump says never depends on which dump was read before it.

use std::sync::Arc;

use ringleader_model::{Frame, Rank, Signature};

/// Lists of ranks that are remembered: the whole job's, and those of groups that cut across it.
const MAX_LISTS: usize = 16;
/// Longest list that is remembered, bytes of its text: a hundred thousand ranks.
const MAX_LIST_BYTES: usize = 1 << 20;
/// A list that is as short is as soon read as found.
const MIN_LIST_BYTES: usize = 64;

/// Ranks that a group may have: more than any job does.
pub(super) const MAX_RANKS: usize = 1 << 20;

/// What is carried from dump to dump.
#[derive(Debug, Default)]
pub(crate) struct CarriedOver {
    pub(super) frames: SharedTable<Frame>,
    pub(super) stacks: SharedTable<Box<[u32]>>,
    pub(super) signatures: SharedTable<Signature>,
    pub(super) lists: RankLists,
}

impl CarriedOver {
    /// Whether nothing has been put into the tables yet.
    pub(super) fn is_new(&self) -> bool {
        self.frames.len() + self.stacks.len() + self.signatures.len() == 0
    }

    /// Whether all tables are the beginnings of those they began with.
    pub(super) fn is_shared(&self) -> bool {
        self.frames.own.is_none() && self.stacks.own.is_none() && self.signatures.own.is_none()
    }

    /// Compares with these tables instead of the last dump's.
    pub(super) fn begin_with(
        &mut self,
        frames: &Arc<Vec<Frame>>,
        stacks: &Arc<Vec<Box<[u32]>>>,
        signatures: &Arc<Vec<Signature>>,
    ) {
        self.frames.before = Arc::clone(frames);
        self.stacks.before = Arc::clone(stacks);
        self.signatures.before = Arc::clone(signatures);
    }
}

/// A table under construction, equal so far to the beginning of the last dump's table, or a table of its own.
#[derive(Debug)]
pub(super) struct SharedTable<T> {
    before: Arc<Vec<T>>,
    /// Items of `before` that this dump has too, in the same order.
    n_shared: usize,
    /// Its own items, once one differs.
    own: Option<Vec<T>>,
}

impl<T> Default for SharedTable<T> {
    fn default() -> Self {
        Self { before: Arc::default(), n_shared: 0, own: None }
    }
}

impl<T: Clone> SharedTable<T> {
    pub(super) fn len(&self) -> usize {
        self.own.as_ref().map_or(self.n_shared, Vec::len)
    }

    #[inline]
    pub(super) fn get(&self, at: u32) -> Option<&T> {
        self.items().get(at as usize)
    }

    pub(super) fn items(&self) -> &[T] {
        match &self.own {
            Some(own) => own,
            None => self.before.get(..self.n_shared).unwrap_or_default(),
        }
    }

    /// Adds an item: the one that comes next in the last dump's table if `is_same` says so, else what `make` makes.
    pub(super) fn push(&mut self, is_same: impl FnOnce(&T) -> bool, make: impl FnOnce() -> T) {
        if let Some(own) = &mut self.own {
            return own.push(make());
        }
        if self.before.get(self.n_shared).is_some_and(is_same) {
            self.n_shared += 1;
            return;
        }
        let mut own = Vec::with_capacity(self.before.len());
        own.extend_from_slice(self.items());
        own.push(make());
        self.own = Some(own);
    }

    /// Says that it has the first `n` items of the table that it is compared with.
    pub(super) fn advance(&mut self, n: usize) {
        if self.own.is_none() {
            self.n_shared = n.clamp(self.n_shared, self.before.len().max(self.n_shared));
        }
    }

    /// The finished table; the next one begins.
    pub(super) fn finish(&mut self) -> Arc<Vec<T>> {
        match self.own.take() {
            Some(own) => self.before = Arc::new(own),
            None if self.n_shared == self.before.len() => {}
            None => self.before = Arc::new(self.items().to_vec()),
        }
        self.n_shared = 0;
        Arc::clone(&self.before)
    }
}

/// Lists of ranks by their text.
#[derive(Debug, Default)]
pub(super) struct RankLists {
    /// Often asked ones first.
    lists: Vec<RankList>,
}

#[derive(Debug)]
struct RankList {
    text: Box<[u8]>,
    ranks: Arc<[Rank]>,
}

impl RankLists {
    /// The list that this text is; None if it is none.
    pub(super) fn read(&mut self, text: &[u8]) -> Option<Arc<[Rank]>> {
        if let Some(at) = self.lists.iter().position(|known| *known.text == *text) {
            let ranks = self.lists.get(at).map(|known| Arc::clone(&known.ranks));
            self.lists.swap(at, at.saturating_sub(1));
            return ranks;
        }
        let ranks: Arc<[Rank]> = ranks(text)?.into();
        if (MIN_LIST_BYTES..=MAX_LIST_BYTES).contains(&text.len()) {
            self.lists.truncate(MAX_LISTS - 1);
            self.lists.push(RankList { text: text.into(), ranks: Arc::clone(&ranks) });
        }
        Some(ranks)
    }
}

/// `[0, 1, 2]`; torch writes this list as a string.
fn ranks(list: &[u8]) -> Option<Vec<Rank>> {
    let inside = list.trim_ascii().strip_prefix(b"[")?.strip_suffix(b"]")?;
    if inside.trim_ascii().is_empty() {
        return Some(Vec::new());
    }
    // A job of ten thousand ranks repeats this list in every dump: digit by digit, without detours over strings.
    let mut ranks = Vec::with_capacity((inside.len() / 3).min(MAX_RANKS));
    let mut rest = inside;
    loop {
        rest = rest.trim_ascii_start();
        let mut number: Option<u32> = None;
        while let [digit @ b'0'..=b'9', tail @ ..] = rest {
            number = Some(number.unwrap_or(0).checked_mul(10)?.checked_add(u32::from(digit - b'0'))?);
            rest = tail;
        }
        ranks.push(Rank(number?));
        rest = rest.trim_ascii_start();
        match rest {
            [] => return Some(ranks),
            [b',', tail @ ..] if ranks.len() < MAX_RANKS => rest = tail,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where it cannot go on")]

    use super::*;

    /// Tables made one after the other of these items: how they come out, and which share with the one before.
    #[track_caller]
    fn check(tables: &[&str], expected: &str) {
        let mut table = SharedTable::<char>::default();
        let mut last: Option<Arc<Vec<char>>> = None;
        let mut said = Vec::new();
        for items in tables {
            for item in items.chars() {
                table.push(|old| *old == item, || item);
            }
            assert_eq!(table.len(), items.chars().count());
            let made = table.finish();
            let is_shared = last.is_some_and(|last| Arc::ptr_eq(&last, &made));
            said.push(format!("{}{}", if is_shared { "=" } else { "" }, made.iter().collect::<String>()));
            last = Some(made);
        }
        assert_eq!(said.join(" "), expected);
    }

    #[test]
    fn equal_tables_are_shared_and_others_are_their_own() {
        check(&["abc", "abc", "abc"], "abc =abc =abc");
        check(&["abc", "ab", "ab", "abc"], "abc ab =ab abc");
        check(&["abc", "axc", "axc"], "abc axc =axc");
        check(&["abc", "abcd", "bc"], "abc abcd bc");
        check(&["", "", "a"], " = a");
    }

    #[test]
    fn a_list_that_was_read_before_is_the_same_one() {
        let text = |first: u32| format!("{:?}", (first..first + 40).collect::<Vec<_>>());
        let mut lists = RankLists::default();
        let first = lists.read(text(0).as_bytes()).unwrap();
        for other in 1..MAX_LISTS as u32 {
            assert_eq!(lists.read(text(other).as_bytes()).unwrap()[0], Rank(other));
        }
        assert!(Arc::ptr_eq(&first, &lists.read(text(0).as_bytes()).unwrap()));
        for other in 100..200 {
            lists.read(text(other).as_bytes()).unwrap();
        }
        assert_eq!(lists.lists.len(), MAX_LISTS, "what is remembered is bounded");
        assert_eq!(lists.read(b"[3, x]"), None);
        assert_eq!(lists.read(b"[3, 1]").unwrap().to_vec(), [Rank(3), Rank(1)]);
    }
}
