//! Who waits for whom: processes and communicators as one graph.
//!
//! A process waits in a communicator; the communicator waits for those of its ranks that have not come. A send or receive
//! waits for its partner. What waits for nobody, or for itself around a circle, holds up all that leads to it.

use crate::digest::OpDigest;
use crate::table::{Chair, Circle, Stand, Table, stand_of};

/// The graph. Nodes are the rows of the table, then its circles.
pub(crate) struct Graph {
    edges: Vec<Vec<u32>>,
    /// For each node its knot: nodes that wait for each other.
    knot_of: Vec<u32>,
    /// Nodes of each knot. A knot stands after all that it waits for.
    pub(crate) knots: Vec<Vec<u32>>,
    /// For each knot, when anything that it waits for last moved.
    moved_ns: Vec<i64>,
    /// For each knot, the ends that it leads to, at most [`MAX_ENDS`].
    ends: Vec<Vec<u32>>,
    n_rows: usize,
}

/// Ends that are kept for each knot.
const MAX_ENDS: usize = 64;

/// A node, told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Row(usize),
    Circle(usize),
}

/// For whom an operation of two waits.
pub(crate) enum Partner {
    /// The partner has nothing of that kind in flight: it has not called its side.
    Missing(usize),
    /// The partner has called its side, and its kernel has not started.
    Late(usize),
    /// Both are there: the transport has it.
    Matched,
    /// What the partner has in flight is not told in full.
    Unclear,
}

/// The other side of a send or receive.
pub(crate) fn partner(circle: &Circle<'_>, chair: &Chair<'_>, op: &OpDigest) -> Partner {
    let Some(peer) = op.peer.filter(|p| *p != chair.rank) else { return Partner::Unclear };
    let Ok(at) = circle.chairs.binary_search_by_key(&peer, |c| c.rank) else { return Partner::Unclear };
    let Some(other) = circle.chairs.get(at) else { return Partner::Unclear };
    let wanted = if op.function == "Send" { "Recv" } else { "Send" };
    let is_match =
        |o: &&OpDigest| o.peer == Some(chair.rank) && (o.function == wanted || o.function == "SendRecv");
    match other.pairs().find(is_match) {
        Some(o) if stand_of(o) == Stand::NotStarted => Partner::Late(other.row),
        Some(_) => Partner::Matched,
        None if other.tells_all() => Partner::Missing(other.row),
        None => Partner::Unclear,
    }
}

/// Chairs that a circle's front waits for.
pub(crate) fn awaited<'t, 'a>(table: &'t Table<'a>, circle: &'t Circle<'a>) -> Vec<&'t Chair<'a>> {
    if circle.front.is_none() {
        return Vec::new();
    }
    let is_broken = |c: &Chair<'_>| table.rows.get(c.row).is_some_and(|r| r.is_broken(table.now_ns));
    let chairs = || circle.chairs.iter().filter(|c| c.stand != Stand::Finished);
    let mut out: Vec<&Chair<'a>> = chairs()
        .filter(|c| matches!(c.stand, Stand::Never | Stand::Different | Stand::Unseen) || is_broken(c))
        .collect();
    // Kernels that do not start explain something only where nobody is missing.
    if out.is_empty() {
        out = chairs().filter(|c| c.stand == Stand::NotStarted).collect();
    }
    out
}

impl Graph {
    pub(crate) fn new(table: &Table<'_>) -> Self {
        let n_rows = table.rows.len();
        let mut graph = Self {
            edges: vec![Vec::new(); n_rows + table.circles.len()],
            knot_of: Vec::new(),
            knots: Vec::new(),
            moved_ns: Vec::new(),
            ends: Vec::new(),
            n_rows,
        };
        for (index, circle) in table.circles.iter().enumerate().filter(|(_, c)| c.is_inside) {
            graph.add(table, index, circle);
        }
        graph.tie();
        graph.spread(table);
        graph
    }

    fn add(&mut self, table: &Table<'_>, index: usize, circle: &Circle<'_>) {
        let this = (self.n_rows + index) as u32;
        let awaited: Vec<u32> = awaited(table, circle).iter().map(|c| c.row as u32).collect();
        if let Some(edges) = self.edges.get_mut(this as usize) {
            edges.extend(awaited);
        }
        for chair in &circle.chairs {
            let Some(row) = table.rows.get(chair.row) else { continue };
            if row.is_silent || row.is_broken(table.now_ns) {
                continue;
            }
            let mut waits = Vec::new();
            if matches!(chair.stand, Stand::Started | Stand::Entered) {
                waits.push(this);
            }
            for op in chair.pairs().filter(|op| stand_of(op) != Stand::NotStarted) {
                match partner(circle, chair, op) {
                    Partner::Missing(row) | Partner::Late(row) => {
                        waits.push(row as u32);
                        if let Some(edges) = self.edges.get_mut(this as usize) {
                            edges.push(row as u32);
                        }
                    }
                    Partner::Matched | Partner::Unclear => waits.push(this),
                }
            }
            if let Some(edges) = self.edges.get_mut(chair.row) {
                edges.extend(waits);
            }
        }
    }

    /// Finds the knots (Tarjan's strongly connected components, without recursion).
    fn tie(&mut self) {
        const NEW: u32 = u32::MAX;
        let n = self.edges.len();
        self.knot_of = vec![NEW; n];
        let (mut order, mut low) = (vec![NEW; n], vec![0_u32; n]);
        let mut counter = 0;
        let mut stack: Vec<u32> = Vec::new();
        let mut path: Vec<(usize, usize)> = Vec::new();
        for root in 0..n {
            if order.get(root) != Some(&NEW) {
                continue;
            }
            path.push((root, 0));
            while let Some((node, next)) = path.pop() {
                if next == 0 {
                    set(&mut order, node, counter);
                    set(&mut low, node, counter);
                    counter += 1;
                    stack.push(node as u32);
                }
                if let Some(to) = self.edges.get(node).and_then(|e| e.get(next)).map(|t| *t as usize) {
                    path.push((node, next + 1));
                    if get(&order, to) == NEW {
                        path.push((to, 0));
                    } else if get(&self.knot_of, to) == NEW {
                        let least = get(&low, node).min(get(&order, to));
                        set(&mut low, node, least);
                    }
                    continue;
                }
                if get(&low, node) == get(&order, node) {
                    let knot = self.knots.len() as u32;
                    let mut members = Vec::new();
                    while let Some(member) = stack.pop() {
                        set(&mut self.knot_of, member as usize, knot);
                        members.push(member);
                        if member as usize == node {
                            break;
                        }
                    }
                    members.sort_unstable();
                    self.knots.push(members);
                }
                if let Some((above, _)) = path.last().copied() {
                    let least = get(&low, above).min(get(&low, node));
                    set(&mut low, above, least);
                }
            }
        }
    }

    /// Carries what is at the ends to all that wait for them. Knots stand in the order in which this works.
    fn spread(&mut self, table: &Table<'_>) {
        for (knot, members) in self.knots.iter().enumerate() {
            let mut moved = 0;
            let mut ends: Vec<u32> = Vec::new();
            for member in members {
                let node = *member as usize;
                moved = moved.max(match self.node(*member) {
                    Node::Row(row) => row_moved(table, row),
                    Node::Circle(circle) => table.circles.get(circle).map_or(0, |c| c.moved_ns),
                });
                for to in self.edges.get(node).into_iter().flatten() {
                    let other = get(&self.knot_of, *to as usize);
                    if other as usize == knot {
                        continue;
                    }
                    moved = moved.max(self.moved_ns.get(other as usize).copied().unwrap_or(0));
                    for end in self.ends.get(other as usize).into_iter().flatten() {
                        if ends.len() < MAX_ENDS && !ends.contains(end) {
                            ends.push(*end);
                        }
                    }
                }
            }
            if ends.is_empty() {
                ends.push(knot as u32);
            }
            ends.sort_unstable();
            self.moved_ns.push(moved);
            self.ends.push(ends);
        }
    }

    pub(crate) fn node(&self, node: u32) -> Node {
        match (node as usize).checked_sub(self.n_rows) {
            None => Node::Row(node as usize),
            Some(circle) => Node::Circle(circle),
        }
    }

    fn knot(&self, circle: usize) -> usize {
        get(&self.knot_of, self.n_rows + circle) as usize
    }

    /// When anything that a circle waits for last moved.
    pub(crate) fn moved_ns(&self, circle: usize) -> i64 {
        self.moved_ns.get(self.knot(circle)).copied().unwrap_or(0)
    }

    /// Knots that hold up a circle.
    pub(crate) fn ends(&self, circle: usize) -> &[u32] {
        self.ends.get(self.knot(circle)).map(Vec::as_slice).unwrap_or_default()
    }

    /// The knot that a row is in.
    pub(crate) fn knot_of_row(&self, row: usize) -> u32 {
        get(&self.knot_of, row)
    }

    /// Nodes of a knot.
    pub(crate) fn members(&self, knot: u32) -> impl Iterator<Item = Node> {
        self.knots.get(knot as usize).into_iter().flatten().map(|n| self.node(*n))
    }

    /// Whether a circle waits for a node of this knot directly, or is in it.
    pub(crate) fn leads_to(&self, circle: usize, knot: u32) -> bool {
        self.knot(circle) == knot as usize
            || self
                .edges
                .get(self.n_rows + circle)
                .into_iter()
                .flatten()
                .any(|to| get(&self.knot_of, *to as usize) == knot)
    }
}

fn get(list: &[u32], at: usize) -> u32 {
    list.get(at).copied().unwrap_or(u32::MAX)
}

fn set(list: &mut [u32], at: usize, value: u32) {
    if let Some(slot) = list.get_mut(at) {
        *slot = value;
    }
}

/// When anything of a process last moved.
pub(crate) fn row_moved(table: &Table<'_>, row: usize) -> i64 {
    let chairs = table.rows.get(row).map(|r| r.chairs.as_slice()).unwrap_or_default();
    let moved = chairs.iter().filter_map(|(c, i)| table.circles.get(*c)?.chairs.get(*i)).map(|c| c.moved_ns);
    moved.max().unwrap_or(0)
}
