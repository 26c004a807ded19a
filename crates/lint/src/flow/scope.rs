//! Names and attributes of one call. What a branch changes can be undone, so that the next one starts where it did.

use std::collections::BTreeMap;

use super::value::{Val, hash, hash_text};
use crate::lookup::LookupMap;
use crate::python::ast::{Expr, ExprKind};

/// `a.b.c`: its first name, and a number for the rest.
pub(crate) type Dotted<'s> = (&'s str, u64);

/// A name, or an attribute of something that a name holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key<'s> {
    Name(&'s str),
    Attr(Dotted<'s>),
}

/// Values of several names; None for a name without a value.
pub(crate) type Values<'s> = BTreeMap<Key<'s>, Option<Val>>;

/// Names and attributes of one call.
#[derive(Debug, Default)]
pub(crate) struct Scope<'s> {
    names: LookupMap<&'s str, Val>,
    attrs: BTreeMap<Dotted<'s>, Val>,
    /// Replaced values, oldest first, while a caller may undo the changes.
    log: Vec<(Key<'s>, Option<Val>)>,
    /// Number of callers that may undo changes.
    watchers: usize,
}

/// The key of an expression that is nothing but names.
pub(crate) fn dotted<'s>(expr: &Expr<'s>) -> Option<Dotted<'s>> {
    match &expr.kind {
        ExprKind::Name(name) => Some((name, 0)),
        ExprKind::Attr(of, name) => {
            let (first, rest) = dotted(of)?;
            Some((first, hash(&[rest, hash_text(name)])))
        }
        _ => None,
    }
}

impl<'s> Scope<'s> {
    pub(crate) fn name(&self, name: &str) -> Option<&Val> {
        self.names.get(name)
    }

    /// The attribute that an expression names, if something was assigned to it.
    pub(crate) fn attr(&self, expr: &Expr<'s>) -> Option<&Val> {
        if self.attrs.is_empty() {
            return None;
        }
        self.attrs.get(&dotted(expr)?)
    }

    pub(crate) fn get(&self, key: Key<'s>) -> Option<&Val> {
        match key {
            Key::Name(name) => self.names.get(name),
            Key::Attr(path) => self.attrs.get(&path),
        }
    }

    pub(crate) fn set(&mut self, name: &'s str, value: Val) {
        self.put(Key::Name(name), Some(value));
    }

    pub(crate) fn put(&mut self, key: Key<'s>, value: Option<Val>) {
        let old = self.swap(key, value);
        if self.watchers > 0 {
            self.log.push((key, old));
        }
    }

    fn swap(&mut self, key: Key<'s>, value: Option<Val>) -> Option<Val> {
        match (key, value) {
            (Key::Name(name), Some(value)) => self.names.insert(name, value),
            (Key::Name(name), None) => self.names.remove(name),
            (Key::Attr(path), Some(value)) => self.attrs.insert(path, value),
            (Key::Attr(path), None) => self.attrs.remove(&path),
        }
    }

    /// A name holds something else now: what was assigned to attributes of the old is gone.
    pub(crate) fn forget_attrs_of(&mut self, name: &'s str) {
        let from = (name, 0);
        let of_name = self.attrs.range(from..).take_while(|((first, _), _)| *first == name);
        let gone: Vec<Dotted<'s>> = of_name.map(|(path, _)| *path).collect();
        for path in gone {
            self.put(Key::Attr(path), None);
        }
    }

    /// The attributes, for a call on the same object.
    pub(crate) fn into_attrs(self) -> BTreeMap<Dotted<'s>, Val> {
        self.attrs
    }

    pub(crate) fn add_attrs(&mut self, attrs: BTreeMap<Dotted<'s>, Val>) {
        self.attrs.extend(attrs);
    }

    /// From here on, changes can be undone.
    pub(crate) fn mark(&mut self) -> usize {
        self.watchers += 1;
        self.log.len()
    }

    /// Undoes all changes since the mark. Answers with what the changed names held.
    pub(crate) fn undo(&mut self, mark: usize) -> Values<'s> {
        self.watchers = self.watchers.saturating_sub(1);
        let mut values = Values::new();
        for (key, old) in self.log.split_off(mark.min(self.log.len())).into_iter().rev() {
            let new = self.swap(key, old);
            // The newest change of a name comes first.
            values.entry(key).or_insert(new);
        }
        values
    }

    /// Undoes changes of names alone.
    pub(crate) fn undo_names(&mut self, mark: usize) {
        self.watchers = self.watchers.saturating_sub(1);
        let changes = self.log.split_off(mark.min(self.log.len()));
        let mut kept = Vec::new();
        for (key, old) in changes.into_iter().rev() {
            match key {
                Key::Name(_) => {
                    self.swap(key, old);
                }
                Key::Attr(_) => kept.push((key, old)),
            }
        }
        if self.watchers > 0 {
            self.log.extend(kept.into_iter().rev());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_branch_changes_is_undone() {
        let mut scope = Scope::default();
        scope.set("a", Val::int(1));
        let outer = scope.mark();
        scope.set("a", Val::int(2));
        let inner = scope.mark();
        scope.set("a", Val::int(3));
        scope.put(Key::Attr(("b", 7)), Some(Val::int(4)));
        let values = scope.undo(inner);
        assert_eq!(values.len(), 2);
        assert_eq!(values.get(&Key::Name("a")).and_then(|v| v.as_ref()?.as_int()), Some(3));
        assert_eq!(scope.name("a").and_then(Val::as_int), Some(2));
        assert!(scope.get(Key::Attr(("b", 7))).is_none());
        let values = scope.undo(outer);
        assert_eq!(values.get(&Key::Name("a")).and_then(|v| v.as_ref()?.as_int()), Some(2));
        assert_eq!(scope.name("a").and_then(Val::as_int), Some(1));
    }

    #[test]
    fn a_name_takes_its_attributes_with_it() {
        let mut scope = Scope::default();
        scope.put(Key::Attr(("a", 1)), Some(Val::int(1)));
        scope.put(Key::Attr(("ab", 1)), Some(Val::int(2)));
        scope.forget_attrs_of("a");
        assert!(scope.get(Key::Attr(("a", 1))).is_none());
        assert!(scope.get(Key::Attr(("ab", 1))).is_some());
    }
}
