//! The paged KV cache: blocks with reference counts, reuse by prefix hash, and eviction of the least recently used.
//!
//! Blocks without a reference stay in one queue, cached or not. A new block is taken from its head. A cached block that is
//! taken so loses its hash. This is vLLM's free-block queue.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Block {
    references: u32,
    before: u32,
    after: u32,
}

/// A fast hash of prefix hashes and request numbers: a multiplication (Fibonacci hashing).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spread(u64);

/// The hasher of tables with such keys. Nobody chooses these keys to make collisions.
pub(super) type Spreading = BuildHasherDefault<Spread>;

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(self.0 ^ u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ (spread >> 32);
    }
}

/// All blocks of the KV cache.
#[derive(Clone, Debug)]
pub(super) struct BlockPool {
    blocks: Vec<Block>,
    /// For each block, the hash of the prefix that it holds. It is not part of [`Block`], so that more blocks fit into the processor's cache.
    hashes: Vec<Option<u64>>,
    cached: HashMap<u64, u32, Spreading>,
    head: u32,
    tail: u32,
    free: u32,
}

impl BlockPool {
    pub(super) fn new(num_blocks: u32) -> Self {
        let blank = Block { references: 0, before: NONE, after: NONE };
        let mut pool = Self {
            blocks: vec![blank; num_blocks as usize],
            hashes: vec![None; num_blocks as usize],
            cached: HashMap::default(),
            head: NONE,
            tail: NONE,
            free: 0,
        };
        for block in 0..num_blocks {
            pool.push(block);
        }
        pool
    }

    /// Blocks without a reference, cached ones included: what an allocation may take.
    pub(super) fn free(&self) -> u32 {
        self.free
    }

    pub(super) fn total(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// The block that holds this prefix, and whether it is free (taking it then shrinks the free queue).
    pub(super) fn cached(&self, hash: u64) -> Option<(u32, bool)> {
        let block = *self.cached.get(&hash)?;
        Some((block, self.blocks[block as usize].references == 0))
    }

    /// Adds a reference to a cached block.
    pub(super) fn share(&mut self, block: u32) {
        if self.blocks[block as usize].references == 0 {
            self.unlink(block);
        }
        self.blocks[block as usize].references += 1;
    }

    /// Takes the least recently used free block.
    pub(super) fn take(&mut self) -> Option<u32> {
        let block = self.head;
        if block == NONE {
            return None;
        }
        self.unlink(block);
        if let Some(hash) = self.hashes[block as usize].take() {
            self.cached.remove(&hash);
        }
        self.blocks[block as usize].references = 1;
        Some(block)
    }

    /// Registers a block under the hash of its prefix. The first block with a hash keeps it.
    pub(super) fn remember(&mut self, block: u32, hash: u64) {
        if let std::collections::hash_map::Entry::Vacant(entry) = self.cached.entry(hash) {
            entry.insert(block);
            self.hashes[block as usize] = Some(hash);
        }
    }

    /// Gives the blocks of a sequence back, the last first: the end of a prefix is evicted before its beginning.
    pub(super) fn release(&mut self, blocks: &mut Vec<u32>) {
        while let Some(block) = blocks.pop() {
            let b = &mut self.blocks[block as usize];
            b.references -= 1;
            if b.references == 0 {
                self.push(block);
            }
        }
    }

    /// Forgets all prefixes; refused while a block is in use, as vLLM refuses it.
    pub(super) fn reset(&mut self) -> bool {
        if self.free != self.total() {
            return false;
        }
        self.cached.clear();
        self.hashes.fill(None);
        true
    }

    fn push(&mut self, block: u32) {
        self.blocks[block as usize].before = self.tail;
        self.blocks[block as usize].after = NONE;
        match self.tail {
            NONE => self.head = block,
            tail => self.blocks[tail as usize].after = block,
        }
        self.tail = block;
        self.free += 1;
    }

    fn unlink(&mut self, block: u32) {
        let Block { before, after, .. } = self.blocks[block as usize];
        match before {
            NONE => self.head = after,
            before => self.blocks[before as usize].after = after,
        }
        match after {
            NONE => self.tail = before,
            after => self.blocks[after as usize].before = before,
        }
        self.free -= 1;
    }

    /// Checks that free and referenced blocks add up and that every cached hash names a block that carries it.
    #[cfg(test)]
    pub(super) fn check(&self, held: &[&[u32]]) {
        let mut references = vec![0; self.blocks.len()];
        held.iter().flat_map(|blocks| blocks.iter()).for_each(|b| references[*b as usize] += 1);
        for (block, counted) in self.blocks.iter().zip(&references) {
            assert_eq!(block.references, *counted);
        }
        assert_eq!(self.free as usize, references.iter().filter(|n| **n == 0).count());
        let (mut walked, mut block) = (0, self.head);
        while block != NONE {
            assert_eq!(self.blocks[block as usize].references, 0);
            (walked, block) = (walked + 1, self.blocks[block as usize].after);
        }
        assert_eq!(walked, self.free);
        for (hash, block) in &self.cached {
            assert_eq!(self.hashes[*block as usize], Some(*hash));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_block_is_evicted_first() {
        let mut pool = BlockPool::new(2);
        let (mut a, mut b) = (vec![pool.take().unwrap()], vec![pool.take().unwrap()]);
        assert_eq!(pool.take(), None);
        pool.remember(a[0], 1);
        pool.remember(b[0], 2);
        pool.release(&mut a);
        pool.release(&mut b);
        let taken = pool.take().unwrap();
        assert!(pool.cached(1).is_none());
        let (kept, free) = pool.cached(2).unwrap();
        assert!(free);
        pool.share(kept);
        assert_eq!(pool.free(), 0);
        pool.check(&[&[taken], &[kept]]);
        assert!(!pool.reset());
    }
}
