//! Who waits for whom: processes and communicators as one graph.
//!
//! A process waits in a communicator; the communicator waits for those of its ranks that have not come. A send or
//! receive waits for its partner. A root waits for no other node, or for itself in a cycle: it delays all that leads to
//! it.

use crate::digest::OpDigest;
use crate::ledger::{Group, Ledger, Stage, Track, stage_of};

/// The graph. Nodes are the members of the ledger, then its communicators.
pub(crate) struct Waits {
    edges: Vec<Vec<u32>>,
    /// For each node its component: nodes that wait for each other.
    component_of: Vec<u32>,
    /// Nodes of each component. A component comes after all that it waits for.
    pub(crate) components: Vec<Vec<u32>>,
    /// For each component, when anything that it waits for last moved.
    moved_ns: Vec<i64>,
    /// For each component, the roots that it leads to, at most [`MAX_ROOTS`].
    roots: Vec<Vec<u32>>,
    n_members: usize,
}

/// Roots that are kept for each component.
const MAX_ROOTS: usize = 64;

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitNode {
    Member(usize),
    Group(usize),
}

/// For whom an operation of two waits.
pub(crate) enum Partner {
    /// The partner has nothing of that kind in flight: it has not called its side.
    Missing(usize),
    /// The partner has called its side, and its kernel has not started.
    Late(usize),
    /// Both are there: the transport has it.
    Matched,
    /// What the partner has in flight is not reported in full.
    Unclear,
}

/// The other side of a send or receive.
pub(crate) fn partner(group: &Group<'_>, track: &Track<'_>, op: &OpDigest) -> Partner {
    let Some(peer) = op.peer.filter(|p| *p != track.rank) else { return Partner::Unclear };
    let Ok(at) = group.tracks.binary_search_by_key(&peer, |c| c.rank) else { return Partner::Unclear };
    let Some(other) = group.tracks.get(at) else { return Partner::Unclear };
    let wanted = if op.function == "Send" { "Recv" } else { "Send" };
    let is_match =
        |o: &&OpDigest| o.peer == Some(track.rank) && (o.function == wanted || o.function == "SendRecv");
    match other.pairs().find(is_match) {
        Some(o) if stage_of(o) == Stage::NotStarted => Partner::Late(other.member),
        Some(_) => Partner::Matched,
        None if other.tells_all() => Partner::Missing(other.member),
        None => Partner::Unclear,
    }
}

/// Ranks that a communicator's front waits for.
pub(crate) fn awaited<'t, 'a>(ledger: &'t Ledger<'a>, group: &'t Group<'a>) -> Vec<&'t Track<'a>> {
    if group.front.is_none() {
        return Vec::new();
    }
    let is_broken = |c: &Track<'_>| ledger.members.get(c.member).is_some_and(|r| r.is_broken(ledger.now_ns));
    let tracks = || group.tracks.iter().filter(|c| c.stage != Stage::Finished);
    let mut out: Vec<&Track<'a>> = tracks()
        .filter(|c| matches!(c.stage, Stage::Never | Stage::Different | Stage::Unseen) || is_broken(c))
        .collect();
    // Kernels that do not start explain a stall only if no rank is missing.
    if out.is_empty() {
        out = tracks().filter(|c| c.stage == Stage::NotStarted).collect();
    }
    out
}

impl Waits {
    pub(crate) fn new(ledger: &Ledger<'_>) -> Self {
        let n_members = ledger.members.len();
        let mut waits = Self {
            edges: vec![Vec::new(); n_members + ledger.groups.len()],
            component_of: Vec::new(),
            components: Vec::new(),
            moved_ns: Vec::new(),
            roots: Vec::new(),
            n_members,
        };
        for (index, group) in ledger.groups.iter().enumerate().filter(|(_, c)| c.is_inside) {
            waits.add(ledger, index, group);
        }
        waits.tie();
        waits.spread(ledger);
        waits
    }

    fn add(&mut self, ledger: &Ledger<'_>, index: usize, group: &Group<'_>) {
        let this = (self.n_members + index) as u32;
        let awaited: Vec<u32> = awaited(ledger, group).iter().map(|c| c.member as u32).collect();
        if let Some(edges) = self.edges.get_mut(this as usize) {
            edges.extend(awaited);
        }
        for track in &group.tracks {
            let Some(member) = ledger.members.get(track.member) else { continue };
            if member.is_silent || member.is_broken(ledger.now_ns) {
                continue;
            }
            let mut awaits = Vec::new();
            if matches!(track.stage, Stage::Started | Stage::Entered) {
                awaits.push(this);
            }
            for op in track.pairs().filter(|op| stage_of(op) != Stage::NotStarted) {
                match partner(group, track, op) {
                    Partner::Missing(member) | Partner::Late(member) => {
                        awaits.push(member as u32);
                        if let Some(edges) = self.edges.get_mut(this as usize) {
                            edges.push(member as u32);
                        }
                    }
                    Partner::Matched | Partner::Unclear => awaits.push(this),
                }
            }
            if let Some(edges) = self.edges.get_mut(track.member) {
                edges.extend(awaits);
            }
        }
    }

    /// Finds the components (Tarjan's strongly connected components, without recursion).
    fn tie(&mut self) {
        const NEW: u32 = u32::MAX;
        let n = self.edges.len();
        self.component_of = vec![NEW; n];
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
                    } else if get(&self.component_of, to) == NEW {
                        let least = get(&low, node).min(get(&order, to));
                        set(&mut low, node, least);
                    }
                    continue;
                }
                if get(&low, node) == get(&order, node) {
                    let component = self.components.len() as u32;
                    let mut nodes = Vec::new();
                    while let Some(node_at) = stack.pop() {
                        set(&mut self.component_of, node_at as usize, component);
                        nodes.push(node_at);
                        if node_at as usize == node {
                            break;
                        }
                    }
                    nodes.sort_unstable();
                    self.components.push(nodes);
                }
                if let Some((above, _)) = path.last().copied() {
                    let least = get(&low, above).min(get(&low, node));
                    set(&mut low, above, least);
                }
            }
        }
    }

    /// Carries what is at the roots to all that wait for them. Components are in the order in which this works.
    fn spread(&mut self, ledger: &Ledger<'_>) {
        for (component, nodes) in self.components.iter().enumerate() {
            let mut moved = 0;
            let mut roots: Vec<u32> = Vec::new();
            for node_at in nodes {
                let node = *node_at as usize;
                moved = moved.max(match self.node(*node_at) {
                    WaitNode::Member(member) => member_moved(ledger, member),
                    WaitNode::Group(group) => ledger.groups.get(group).map_or(0, |c| c.moved_ns),
                });
                for to in self.edges.get(node).into_iter().flatten() {
                    let other = get(&self.component_of, *to as usize);
                    if other as usize == component {
                        continue;
                    }
                    moved = moved.max(self.moved_ns.get(other as usize).copied().unwrap_or(0));
                    for root in self.roots.get(other as usize).into_iter().flatten() {
                        if roots.len() < MAX_ROOTS && !roots.contains(root) {
                            roots.push(*root);
                        }
                    }
                }
            }
            if roots.is_empty() {
                roots.push(component as u32);
            }
            roots.sort_unstable();
            self.moved_ns.push(moved);
            self.roots.push(roots);
        }
    }

    pub(crate) fn node(&self, node: u32) -> WaitNode {
        match (node as usize).checked_sub(self.n_members) {
            None => WaitNode::Member(node as usize),
            Some(group) => WaitNode::Group(group),
        }
    }

    fn component(&self, group: usize) -> usize {
        get(&self.component_of, self.n_members + group) as usize
    }

    /// When anything that a communicator waits for last moved.
    pub(crate) fn moved_ns(&self, group: usize) -> i64 {
        self.moved_ns.get(self.component(group)).copied().unwrap_or(0)
    }

    /// The roots: components that hold up a communicator.
    pub(crate) fn roots(&self, group: usize) -> &[u32] {
        self.roots.get(self.component(group)).map(Vec::as_slice).unwrap_or_default()
    }

    /// The component that a member is in.
    pub(crate) fn component_of_member(&self, member: usize) -> u32 {
        get(&self.component_of, member)
    }

    /// Nodes of a component.
    pub(crate) fn nodes(&self, component: u32) -> impl Iterator<Item = WaitNode> {
        self.components.get(component as usize).into_iter().flatten().map(|n| self.node(*n))
    }

    /// Whether a communicator waits for a node of this component directly, or is in it.
    pub(crate) fn leads_to(&self, group: usize, component: u32) -> bool {
        self.component(group) == component as usize
            || self
                .edges
                .get(self.n_members + group)
                .into_iter()
                .flatten()
                .any(|to| get(&self.component_of, *to as usize) == component)
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
pub(crate) fn member_moved(ledger: &Ledger<'_>, member: usize) -> i64 {
    let tracks = ledger.members.get(member).map(|r| r.tracks.as_slice()).unwrap_or_default();
    let moved = tracks.iter().filter_map(|(c, i)| ledger.groups.get(*c)?.tracks.get(*i)).map(|c| c.moved_ns);
    moved.max().unwrap_or(0)
}
