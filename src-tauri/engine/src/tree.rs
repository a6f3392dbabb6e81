//! The prefix tree: which token sequences have their keys and values somewhere, and where.
//!
//! Nodes are blocks, named by everything up to their end. A node is *resident* (it has a slot of the working pool), in the host tier,
//! *saved* (the block store has it), several of these, or for a short while nothing; a walk passes only through nodes that are
//! somewhere. The tree owns one reference to each slot of a node; it does no input or output.

use std::collections::HashMap;

use kernels::BLOCK_TOKENS;
use store::{Block, BlockId, Fingerprint};

/// Where a block stands on its way to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// Only in memory.
    No,
    /// Handed to the writer, which has not answered yet.
    Queued,
    /// In the block store, as far as the tree knows; a failed read tells otherwise.
    Yes,
}

/// Where slots are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// The working pool.
    Pool,
    /// The machine's memory, beside a GPU's.
    Host,
}

/// One block and where it is.
#[derive(Debug)]
pub struct Node {
    /// Name, parent, position and tokens.
    pub block: Block,
    /// Slot of the working pool, when resident.
    pub slot: Option<u32>,
    /// Slot of the host tier, when it is there.
    pub host: Option<u32>,
    /// State on disk.
    pub saved: Saved,
    /// Milliseconds that bringing it from disk took, until a turn has counted it as restored.
    pub restored_ms: Option<f64>,
    children: Vec<BlockId>,
    last_used: u64,
}

impl Node {
    fn is_present(&self) -> bool {
        self.is_in_memory() || self.saved != Saved::No
    }

    /// Whether it needs no reading from disk.
    pub fn is_in_memory(&self) -> bool {
        self.slot.is_some() || self.host.is_some()
    }

    /// Its slot in a tier.
    pub fn slot_in(&self, tier: Tier) -> Option<u32> {
        match tier {
            Tier::Pool => self.slot,
            Tier::Host => self.host,
        }
    }
}

/// The longest cached beginning of a prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// Full blocks from the start of the prompt.
    pub full: Vec<BlockId>,
    /// The block that matches partly after them, and how many of its tokens do.
    pub partial: Option<(BlockId, usize)>,
}

impl Match {
    /// Tokens covered.
    pub fn num_tokens(&self) -> usize {
        self.full.len() * BLOCK_TOKENS + self.partial.map_or(0, |(_, n)| n)
    }

    /// All blocks named, first to last.
    pub fn blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.full
            .iter()
            .copied()
            .chain(self.partial.map(|(id, _)| id))
    }
}

/// Blocks of one fingerprint, by name and by parent.
#[derive(Debug)]
pub struct PrefixTree {
    fingerprint: Fingerprint,
    nodes: HashMap<BlockId, Node>,
    roots: Vec<BlockId>,
    tick: u64,
}

impl PrefixTree {
    /// An empty tree for blocks of one fingerprint.
    pub fn new(fingerprint: Fingerprint) -> Self {
        Self {
            fingerprint,
            nodes: HashMap::new(),
            roots: Vec::new(),
            tick: 0,
        }
    }

    /// The node of a block.
    pub fn get(&self, id: &BlockId) -> Option<&Node> {
        self.nodes.get(id)
    }

    /// The node of a block, to be changed.
    pub fn get_mut(&mut self, id: &BlockId) -> Option<&mut Node> {
        self.nodes.get_mut(id)
    }

    /// All nodes, in no order.
    pub fn nodes(&self) -> impl Iterator<Item = (&BlockId, &Node)> {
        self.nodes.iter()
    }

    /// Adds a block that is not there yet; returns its node either way.
    pub fn insert(&mut self, block: Block) -> &mut Node {
        let id = block.id;
        self.tick += 1;
        if !self.nodes.contains_key(&id) {
            match block.parent.and_then(|parent| self.nodes.get_mut(&parent)) {
                Some(parent) => parent.children.push(id),
                // A block whose parent is unknown cannot be walked to; as a root its id still names it.
                None => self.roots.push(id),
            }
        }
        let tick = self.tick;
        let node = self.nodes.entry(id).or_insert_with(|| Node {
            block,
            slot: None,
            host: None,
            saved: Saved::No,
            restored_ms: None,
            children: Vec::new(),
            last_used: tick,
        });
        node.last_used = tick;
        node
    }

    /// Marks blocks as just used; later ones count as older, so that eviction starts at the tail.
    pub fn touch(&mut self, ids: &[BlockId]) {
        for id in ids.iter().rev() {
            self.tick += 1;
            if let Some(node) = self.nodes.get_mut(id) {
                node.last_used = self.tick;
            }
        }
    }

    /// The name of the block that continues `parent` with `tokens`.
    pub fn id(&self, parent: Option<&BlockId>, tokens: &[u32]) -> BlockId {
        BlockId::of(&self.fingerprint, parent, tokens)
    }

    /// The longest cached beginning of `prompt`, exact to the token and at most `prompt.len() - 1` (law 3).
    /// Tokens are compared, not only names. Changes nothing.
    pub fn find(&self, prompt: &[u32]) -> Match {
        let limit = prompt.len().saturating_sub(1);
        let mut found = Match::default();
        let mut parent = None;
        let mut at = 0;
        while at + BLOCK_TOKENS <= limit {
            let tokens = &prompt[at..at + BLOCK_TOKENS];
            let id = self.id(parent.as_ref(), tokens);
            match self.nodes.get(&id) {
                Some(node) if node.is_present() && node.block.tokens == tokens => {}
                _ => break,
            }
            found.full.push(id);
            parent = Some(id);
            at += BLOCK_TOKENS;
        }
        found.partial = self.longest_child(parent, &prompt[at..limit]);
        found
    }

    fn longest_child(&self, parent: Option<BlockId>, rest: &[u32]) -> Option<(BlockId, usize)> {
        let children = match parent {
            Some(parent) => &self.nodes.get(&parent)?.children,
            None => &self.roots,
        };
        children
            .iter()
            .filter_map(|id| {
                let node = self.nodes.get(id)?;
                let common = node
                    .block
                    .tokens
                    .iter()
                    .zip(rest)
                    .take_while(|(a, b)| a == b)
                    .count();
                let reachable = node.is_present() && node.block.parent == parent;
                let nearness = (node.slot.is_some(), node.host.is_some());
                (common > 0 && reachable).then_some((common, nearness, *id))
            })
            .max_by_key(|&(common, nearness, _)| (common, nearness))
            .map(|(common, _, id)| (id, common))
    }

    /// The names of the whole blocks of `tokens`, known or not.
    pub fn chain(&self, tokens: &[u32]) -> Vec<BlockId> {
        let mut chain = Vec::with_capacity(tokens.len() / BLOCK_TOKENS);
        for tokens in tokens.chunks_exact(BLOCK_TOKENS) {
            chain.push(self.id(chain.last(), tokens));
        }
        chain
    }

    /// The block of a tier with no block of that tier below it that goes first: of those that `rank` ranks lowest (and does not
    /// leave out), given their slots, the least recently used.
    pub fn oldest_leaf<R: Ord>(
        &self,
        tier: Tier,
        rank: impl Fn(&Node, u32) -> Option<R>,
    ) -> Option<BlockId> {
        let is_there = |id: &BlockId| self.nodes[id].slot_in(tier).is_some();
        self.nodes
            .values()
            .filter_map(|node| Some((rank(node, node.slot_in(tier)?)?, node)))
            .filter(|(_, node)| !node.children.iter().any(is_there))
            .min_by(|(a, one), (b, other)| a.cmp(b).then(one.last_used.cmp(&other.last_used)))
            .map(|(_, node)| node.block.id)
    }

    /// Partial blocks beside `block` whose tokens are a beginning of its tokens: they hold nothing that it does not.
    pub fn superseded_by(&self, block: &Block) -> Vec<BlockId> {
        let siblings = match block.parent {
            Some(parent) => self
                .nodes
                .get(&parent)
                .map_or(&[][..], |node| &node.children),
            None => &self.roots,
        };
        siblings
            .iter()
            .filter(|id| {
                let tokens = &self.nodes[*id].block.tokens;
                **id != block.id
                    && tokens.len() < block.tokens.len()
                    && block.tokens.starts_with(tokens)
            })
            .copied()
            .collect()
    }

    /// A read of this block failed: neither it nor anything below it is on disk any more.
    pub fn forget_saved(&mut self, id: &BlockId) {
        let mut below = vec![*id];
        while let Some(id) = below.pop() {
            if let Some(node) = self.nodes.get_mut(&id) {
                node.saved = Saved::No;
                below.extend(&node.children);
            }
        }
        self.prune(id);
    }

    /// Removes a block that is nowhere, with everything below it that is nowhere either.
    pub fn prune(&mut self, id: &BlockId) {
        let Some(node) = self.nodes.get(id) else {
            return;
        };
        for child in node.children.clone() {
            self.prune(&child);
        }
        let node = &self.nodes[id];
        if node.is_present() || !node.children.is_empty() {
            return;
        }
        let parent = node.block.parent;
        self.nodes.remove(id);
        let siblings = match parent.and_then(|parent| self.nodes.get_mut(&parent)) {
            Some(parent) => &mut parent.children,
            None => &mut self.roots,
        };
        siblings.retain(|sibling| sibling != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> PrefixTree {
        PrefixTree::new(Fingerprint([7; 32]))
    }

    fn grow(tree: &mut PrefixTree, tokens: &[u32]) -> Vec<BlockId> {
        let mut parent = None;
        let mut ids = Vec::new();
        for (index, chunk) in tokens.chunks(BLOCK_TOKENS).enumerate() {
            let id = tree.id(parent.as_ref(), chunk);
            let position = (index * BLOCK_TOKENS) as u32;
            let node = tree.insert(Block {
                id,
                parent,
                position,
                tokens: chunk.to_vec(),
            });
            node.saved = Saved::Yes;
            parent = Some(id);
            ids.push(id);
        }
        ids
    }

    #[test]
    fn a_match_is_exact_to_the_token() {
        let mut tree = tree();
        let text: Vec<u32> = (0..200).collect();
        grow(&mut tree, &text);
        for keep in [1, 63, 64, 65, 127, 128, 129, 199] {
            let mut prompt = text[..keep].to_vec();
            prompt.extend([9_999; 40]);
            assert_eq!(tree.find(&prompt).num_tokens(), keep, "edit at {keep}");
        }
    }

    #[test]
    fn at_most_len_minus_one_tokens_are_reused() {
        let mut tree = tree();
        let text: Vec<u32> = (0..256).collect();
        grow(&mut tree, &text);
        for len in [1, 2, 63, 64, 65, 127, 128, 129, 256] {
            assert_eq!(
                tree.find(&text[..len]).num_tokens(),
                len - 1,
                "prompt of {len}"
            );
        }
        assert_eq!(tree.find(&[]).num_tokens(), 0);
    }

    #[test]
    fn what_was_lost_on_disk_is_not_found() {
        let mut tree = tree();
        let text: Vec<u32> = (0..256).collect();
        let ids = grow(&mut tree, &text);
        tree.get_mut(&ids[2]).unwrap().slot = Some(3);
        tree.forget_saved(&ids[1]);
        assert_eq!(tree.find(&text).num_tokens(), 64);
        assert!(tree.get(&ids[3]).is_none(), "pruned");
        assert!(tree.get(&ids[2]).is_some(), "still resident");
    }

    #[test]
    fn the_tail_is_the_first_to_go() {
        let mut tree = tree();
        let text: Vec<u32> = (0..192).collect();
        let ids = grow(&mut tree, &text);
        for (slot, id) in ids.iter().enumerate() {
            tree.get_mut(id).unwrap().slot = Some(slot as u32);
        }
        tree.touch(&ids);
        assert_eq!(tree.oldest_leaf(Tier::Pool, |_, _| Some(())), Some(ids[2]));
        assert_eq!(tree.oldest_leaf(Tier::Host, |_, _| Some(())), None);
        tree.get_mut(&ids[1]).unwrap().host = Some(0);
        assert_eq!(tree.oldest_leaf(Tier::Host, |_, _| Some(())), Some(ids[1]));
    }

    #[test]
    fn a_block_in_the_host_tier_alone_is_found_until_it_goes() {
        let mut tree = tree();
        let text: Vec<u32> = (0..128).collect();
        let ids = grow(&mut tree, &text);
        tree.get_mut(&ids[1]).unwrap().host = Some(3);
        tree.forget_saved(&ids[1]);
        assert_eq!(tree.find(&text).num_tokens(), 127);
        tree.get_mut(&ids[1]).unwrap().host = None;
        tree.prune(&ids[1]);
        assert_eq!(tree.find(&text).num_tokens(), 64);
    }
}
