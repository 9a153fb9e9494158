//! Objects in blocks: the block of each object, and the objects of each block.

/// A block's number; numbers of erased blocks are reused.
pub(super) type Block = u32;

/// An object that is in no block.
const NOWHERE: Block = Block::MAX;

/// All blocks of a cache, open and sealed.
pub(super) struct Blocks {
    /// Capacity of a block.
    pub(super) block_weight: u64,
    /// The block of each object.
    home: Vec<Block>,
    blocks: Vec<Contents>,
    free: Vec<Block>,
}

#[derive(Default)]
struct Contents {
    /// The appended objects. Some may have been removed since.
    objects: Vec<(u32, u32)>,
    filled_weight: u64,
}

impl Blocks {
    pub(super) fn new(block_weight: u64) -> Self {
        assert!(block_weight > 0, "a block must have a weight above 0");
        Self { block_weight, home: Vec::new(), blocks: Vec::new(), free: Vec::new() }
    }

    /// An empty block.
    pub(super) fn open(&mut self) -> Block {
        self.free.pop().unwrap_or_else(|| {
            self.blocks.push(Contents::default());
            self.blocks.len() as Block - 1
        })
    }

    /// Whether a block has space for an object of this weight.
    pub(super) fn has_room(&self, block: Block, weight: u32) -> bool {
        self.filled_weight(block) + u64::from(weight) <= self.block_weight
    }

    pub(super) fn filled_weight(&self, block: Block) -> u64 {
        self.blocks[block as usize].filled_weight
    }

    /// Appends an object, removing it from its previous block.
    pub(super) fn append(&mut self, block: Block, object: u32, weight: u32) {
        if object as usize >= self.home.len() {
            self.home.resize(object as usize + 1, NOWHERE);
        }
        self.home[object as usize] = block;
        let contents = &mut self.blocks[block as usize];
        contents.objects.push((object, weight));
        contents.filled_weight += u64::from(weight);
    }

    /// The block of an object.
    pub(super) fn home(&self, object: u32) -> Option<Block> {
        self.home.get(object as usize).copied().filter(|home| *home != NOWHERE)
    }

    /// Removes an object; its space in the block is not free until the block is erased.
    pub(super) fn forget(&mut self, object: u32) {
        self.home[object as usize] = NOWHERE;
    }

    /// Empties a block. Its remaining objects and their weights are added to `left`, and are in no block any more.
    pub(super) fn erase(&mut self, block: Block, left: &mut Vec<(u32, u32)>) {
        left.clear();
        let contents = std::mem::take(&mut self.blocks[block as usize]);
        // The newest first: an object can have been removed and added again, to another block or this one.
        for (object, weight) in contents.objects.into_iter().rev() {
            if self.home[object as usize] == block {
                self.home[object as usize] = NOWHERE;
                left.push((object, weight));
            }
        }
        left.reverse();
        self.free.push(block);
    }
}
