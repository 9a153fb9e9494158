//! fio's random map: which blocks of a range were used in this pass.

/// A set of block numbers that finds the next free one in few steps: a bitmap, and above it bitmaps of full words.
#[derive(Debug, Clone)]
pub(super) struct RandomMap {
    blocks: u64,
    used: u64,
    /// The first has a bit for each block; each next one a bit for each word of the one before that is full.
    levels: Vec<Vec<u64>>,
}

const WORD_BITS: u64 = u64::BITS as u64;

impl RandomMap {
    /// A map of `blocks` free blocks.
    pub(super) fn new(blocks: u64) -> Self {
        let mut levels = Vec::new();
        let mut bits = blocks;
        loop {
            let words = bits.div_ceil(WORD_BITS).max(1);
            levels.push(vec![0; words as usize]);
            if words == 1 {
                break;
            }
            bits = words;
        }
        let mut map = Self { blocks, used: 0, levels };
        map.mark_padding();
        map
    }

    /// Frees all blocks.
    pub(super) fn clear(&mut self) {
        self.levels.iter_mut().for_each(|level| level.fill(0));
        self.used = 0;
        self.mark_padding();
    }

    pub(super) fn is_full(&self) -> bool {
        self.used == self.blocks
    }

    /// The first free block from `from` on, or from the beginning if there is none; `None` if all are used.
    pub(super) fn next_free(&self, from: u64) -> Option<u64> {
        (!self.is_full()).then(|| self.free_from(from).or_else(|| self.free_from(0))).flatten()
    }

    /// Uses up to `count` blocks from the free block `first` on, and returns how many: fewer if a used one or the end follows.
    pub(super) fn take(&mut self, first: u64, count: u64) -> u64 {
        let mut taken = 0;
        while taken < count && first + taken < self.blocks && !self.is_used(first + taken) {
            self.set(first + taken);
            taken += 1;
        }
        self.used += taken;
        taken
    }

    fn is_used(&self, block: u64) -> bool {
        self.levels[0][(block / WORD_BITS) as usize] >> (block % WORD_BITS) & 1 == 1
    }

    fn set(&mut self, mut bit: u64) {
        for level in &mut self.levels {
            let word = &mut level[(bit / WORD_BITS) as usize];
            *word |= 1 << (bit % WORD_BITS);
            if *word != u64::MAX {
                return;
            }
            bit /= WORD_BITS;
        }
    }

    /// Bits behind the last block, and behind the last word of each level, count as used.
    fn mark_padding(&mut self) {
        let mut bits = self.blocks;
        for level in &mut self.levels {
            let words = level.len() as u64;
            for bit in bits..words * WORD_BITS {
                level[(bit / WORD_BITS) as usize] |= 1 << (bit % WORD_BITS);
            }
            bits = words;
        }
    }

    /// The first free block at or behind `from`.
    fn free_from(&self, from: u64) -> Option<u64> {
        let (mut level, mut bit) = (0, from);
        // Up to a level where the rest of the word has a free bit ...
        loop {
            let words = self.levels.get(level)?;
            let word = words.get((bit / WORD_BITS) as usize)?;
            let free = !word & (u64::MAX << (bit % WORD_BITS));
            if free != 0 {
                bit = bit / WORD_BITS * WORD_BITS + u64::from(free.trailing_zeros());
                break;
            }
            level += 1;
            bit = bit / WORD_BITS + 1;
        }
        // ... and down to the block.
        while level > 0 {
            level -= 1;
            let word = self.levels[level][bit as usize];
            bit = bit * WORD_BITS + u64::from((!word).trailing_zeros());
        }
        Some(bit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_free_matches_a_plain_search_until_full() {
        for blocks in [1, 63, 64, 65, 4096, 5000, 300_000] {
            let mut map = RandomMap::new(blocks);
            let mut is_used = vec![false; blocks as usize];
            let mut from = 7;
            for step in 0..blocks.min(3000) {
                from = (from * 48_271 + step) % blocks;
                let expected = (from..blocks).chain(0..from).find(|&block| !is_used[block as usize]);
                assert_eq!(map.next_free(from), expected, "{blocks} blocks, step {step}");
                let block = expected.unwrap();
                assert_eq!(map.take(block, 1), 1);
                is_used[block as usize] = true;
            }
            assert_eq!(map.is_full(), blocks <= 3000);
            if map.is_full() {
                assert_eq!(map.next_free(0), None);
            }
            map.clear();
            assert_eq!(map.next_free(blocks - 1), Some(blocks - 1));
        }
    }

    #[test]
    fn take_stops_at_a_used_block_and_at_the_end() {
        let mut map = RandomMap::new(100);
        assert_eq!(map.take(10, 1), 1);
        assert_eq!(map.take(5, 20), 5);
        assert_eq!(map.take(95, 20), 5);
    }
}
