//! The handshake: from the greeting to the negotiated export.
//!
//! It converts bytes to bytes and uses no socket. Unknown options are refused and skipped, as fixed newstyle negotiation requires. Options
//! longer than any valid one are skipped without being stored.

use super::wire::{
    ANSWER_MAGIC, Fields, INIT_MAGIC, MAX_PAYLOAD_BYTES, OPTION_MAGIC, answer, export_flag, handshake_flag,
    info, option,
};
use crate::export::{Context, Shape};

/// Longest option that is stored. A name has at most 4096 bytes, and a list of contexts a few names.
const MAX_OPTION_BYTES: usize = 64 << 10;

const OPTION_HEAD_BYTES: usize = 16;

/// An export that clients can select. The first one is also selected by the empty name.
#[derive(Debug, Clone)]
pub(super) struct Offer {
    pub name: String,
    pub description: String,
    pub shape: Shape,
    pub contexts: Vec<Context>,
}

/// The negotiated options.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct NegotiatedOptions {
    /// Index of the export.
    pub place: usize,
    pub structured: bool,
    /// Negotiated contexts, in the order of [`Context::ALL`].
    pub contexts: Vec<Context>,
}

/// Result of a step of the handshake.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The handshake continues.
    More,
    /// The handshake is complete; requests follow.
    Transmit(NegotiatedOptions),
    /// The connection ends after the output is sent.
    Close,
}

/// A handshake in progress.
pub(super) struct Handshake<'a> {
    offers: &'a [Offer],
    stage: Stage,
    no_zeroes: bool,
    structured: bool,
    /// The export for which contexts were set. They are valid only if the client then selects it.
    contexts_of: Vec<u8>,
    contexts: Vec<Context>,
    /// The code of the last received option.
    last_option: u32,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    Flags,
    Option,
    /// Remaining bytes of an option that is skipped.
    Skip(u64),
}

impl<'a> Handshake<'a> {
    pub fn new(offers: &'a [Offer]) -> Self {
        let (contexts_of, contexts) = (Vec::new(), Vec::new());
        let (no_zeroes, structured, last_option) = (false, false, 0);
        Self { offers, stage: Stage::Flags, no_zeroes, structured, contexts_of, contexts, last_option }
    }

    /// Writes the server's greeting.
    pub fn greet(&self, output: &mut Vec<u8>) {
        output.extend(INIT_MAGIC.to_be_bytes());
        output.extend(OPTION_MAGIC.to_be_bytes());
        output.extend((handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES).to_be_bytes());
    }

    /// Maximum of input that [`advance`](Self::advance) needs.
    pub const MAX_INPUT_BYTES: usize = OPTION_HEAD_BYTES + MAX_OPTION_BYTES;

    /// Processes the next message if `input` contains it completely, and appends the reply to `output`. Returns the number of bytes
    /// used; 0 if more input is needed.
    pub fn advance(&mut self, input: &[u8], output: &mut Vec<u8>) -> (usize, Step) {
        match self.stage {
            Stage::Flags => self.take_flags(input),
            Stage::Option => self.take_option(input, output),
            Stage::Skip(left) => {
                let taken = left.min(input.len() as u64);
                self.stage = if taken == left { Stage::Option } else { Stage::Skip(left - taken) };
                (taken as usize, Step::More)
            }
        }
    }

    fn take_flags(&mut self, input: &[u8]) -> (usize, Step) {
        let Some(flags) = Fields(input).u32() else { return (0, Step::More) };
        let known = u32::from(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
        if flags & !known != 0 {
            return (4, Step::Close);
        }
        self.no_zeroes = flags & u32::from(handshake_flag::NO_ZEROES) != 0;
        self.stage = Stage::Option;
        (4, Step::More)
    }

    fn take_option(&mut self, input: &[u8], output: &mut Vec<u8>) -> (usize, Step) {
        let mut fields = Fields(input);
        let (Some(magic), Some(code), Some(len)) = (fields.u64(), fields.u32(), fields.u32()) else {
            return (0, Step::More);
        };
        if magic != OPTION_MAGIC {
            return (OPTION_HEAD_BYTES, Step::Close);
        }
        if len as usize > MAX_OPTION_BYTES {
            return self.skip_option(code, len, output);
        }
        let Some(data) = fields.0.get(..len as usize) else { return (0, Step::More) };
        (OPTION_HEAD_BYTES + data.len(), self.answer(code, data, output))
    }

    fn skip_option(&mut self, code: u32, len: u32, output: &mut Vec<u8>) -> (usize, Step) {
        if code == option::EXPORT_NAME {
            return (OPTION_HEAD_BYTES, Step::Close);
        }
        refuse(output, code, answer::TOO_BIG, "the option is longer than 64 KiB");
        self.stage = Stage::Skip(u64::from(len));
        (OPTION_HEAD_BYTES, Step::More)
    }

    /// Replaces the reply that would complete the handshake by a refusal. `NBD_OPT_EXPORT_NAME` has no refusal.
    pub fn refuse_export(&self, output: &mut Vec<u8>, why: &str) {
        output.clear();
        if self.last_option != option::EXPORT_NAME {
            refuse(output, self.last_option, answer::POLICY, why);
        }
    }

    fn answer(&mut self, code: u32, data: &[u8], output: &mut Vec<u8>) -> Step {
        self.last_option = code;
        match code {
            option::EXPORT_NAME => return self.export_name(data, output),
            option::ABORT => {
                reply(output, code, answer::ACK, &[]);
                return Step::Close;
            }
            option::LIST => self.list(data, output),
            option::INFO | option::GO => return self.info(code, data, output),
            option::STRUCTURED_REPLY if !data.is_empty() => {
                refuse(output, code, answer::INVALID, "this option takes no data");
            }
            option::STRUCTURED_REPLY => {
                self.structured = true;
                reply(output, code, answer::ACK, &[]);
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.meta_context(code, data, output),
            _ => refuse(output, code, answer::UNSUPPORTED, "this server does not know this option"),
        }
        Step::More
    }

    /// `NBD_OPT_EXPORT_NAME`: the only reply is the export itself, and the only refusal is to disconnect.
    fn export_name(&mut self, name: &[u8], output: &mut Vec<u8>) -> Step {
        let Some((place, offer)) = self.offer_named(name) else { return Step::Close };
        output.extend(offer.shape.size_bytes.to_be_bytes());
        output.extend(self.export_flags(offer).to_be_bytes());
        if !self.no_zeroes {
            output.extend([0; 124]);
        }
        self.agree(place, name)
    }

    fn list(&self, data: &[u8], output: &mut Vec<u8>) {
        if !data.is_empty() {
            return refuse(output, option::LIST, answer::INVALID, "this option takes no data");
        }
        for offer in self.offers {
            let name = offer.name.as_bytes();
            let mut data = (name.len() as u32).to_be_bytes().to_vec();
            data.extend(name);
            reply(output, option::LIST, answer::SERVER, &data);
        }
        reply(output, option::LIST, answer::ACK, &[]);
    }

    fn info(&mut self, code: u32, data: &[u8], output: &mut Vec<u8>) -> Step {
        let Some((name, requested)) = info_request(data) else {
            refuse(output, code, answer::INVALID, "the option's data is malformed");
            return Step::More;
        };
        let Some((place, offer)) = self.offer_named(name) else {
            refuse(output, code, answer::UNKNOWN, "no export has that name");
            return Step::More;
        };
        self.append_info(offer, code, &requested, output);
        reply(output, code, answer::ACK, &[]);
        if code == option::GO { self.agree(place, name) } else { Step::More }
    }

    fn append_info(&self, offer: &Offer, code: u32, requested: &[u16], output: &mut Vec<u8>) {
        let mut append = |kind: u16, data: &[&[u8]]| {
            reply(output, code, answer::INFO, &[&kind.to_be_bytes()[..], &data.concat()].concat());
        };
        let shape = offer.shape;
        append(info::EXPORT, &[&shape.size_bytes.to_be_bytes(), &self.export_flags(offer).to_be_bytes()]);
        // Unaligned requests are served, but libnbd refuses requests smaller than the minimum. So only disks with large sectors have
        // one.
        let minimum_bytes = if shape.sector_bytes > 512 { shape.sector_bytes } else { shape.block_bytes };
        let sizes = [minimum_bytes, shape.preferred_bytes, MAX_PAYLOAD_BYTES].map(u32::to_be_bytes);
        append(info::BLOCK_SIZE, &[sizes.as_flattened()]);
        if requested.contains(&info::NAME) {
            append(info::NAME, &[offer.name.as_bytes()]);
        }
        if requested.contains(&info::DESCRIPTION) && !offer.description.is_empty() {
            append(info::DESCRIPTION, &[offer.description.as_bytes()]);
        }
    }

    fn meta_context(&mut self, code: u32, data: &[u8], output: &mut Vec<u8>) {
        let setting = code == option::SET_META_CONTEXT;
        if setting {
            // Even a failed request replaces the contexts of the previous one.
            self.contexts.clear();
        }
        if setting && !self.structured {
            return refuse(output, code, answer::INVALID, "metadata contexts need structured replies");
        }
        let Some((name, queries)) = context_request(data) else {
            return refuse(output, code, answer::INVALID, "the option's data is malformed");
        };
        let Some((_, offer)) = self.offer_named(name) else {
            return refuse(output, code, answer::UNKNOWN, "no export has that name");
        };
        let offered = offer.contexts.iter().copied();
        let chosen: Vec<Context> =
            offered.filter(|context| is_requested(*context, &queries, setting)).collect();
        for context in &chosen {
            let id = if setting { context_id(*context) } else { 0 };
            reply(
                output,
                code,
                answer::META_CONTEXT,
                &[&id.to_be_bytes()[..], context.name().as_bytes()].concat(),
            );
        }
        reply(output, code, answer::ACK, &[]);
        if setting {
            (self.contexts_of, self.contexts) = (name.to_vec(), chosen);
        }
    }

    /// The offer with this name, and its index.
    fn offer_named(&self, name: &[u8]) -> Option<(usize, &'a Offer)> {
        let mut offers = self.offers.iter().enumerate();
        offers.find(|(place, offer)| name == offer.name.as_bytes() || (*place == 0 && name.is_empty()))
    }

    fn agree(&mut self, place: usize, name: &[u8]) -> Step {
        let mut contexts = std::mem::take(&mut self.contexts);
        if self.contexts_of != name {
            contexts.clear();
        }
        Step::Transmit(NegotiatedOptions { place, structured: self.structured, contexts })
    }

    fn export_flags(&self, offer: &Offer) -> u16 {
        let for_writers = export_flag::SEND_FUA
            | export_flag::SEND_TRIM
            | export_flag::SEND_WRITE_ZEROES
            | export_flag::SEND_FAST_ZERO;
        export_flag::HAS_FLAGS
            | export_flag::SEND_FLUSH
            | export_flag::SEND_CACHE
            | export_flag::CAN_MULTI_CONN
            | if offer.shape.read_only { export_flag::READ_ONLY } else { for_writers }
            | if self.structured { export_flag::SEND_DF } else { 0 }
    }
}

/// The identifier of a context in the protocol.
pub(super) fn context_id(context: Context) -> u32 {
    context as u32
}

/// When listing, a namespace selects all its contexts, and no query selects everything. When setting, only complete names do.
fn is_requested(context: Context, queries: &[&[u8]], setting: bool) -> bool {
    let name = context.name().as_bytes();
    let is_namespace = |query: &[u8]| query.ends_with(b":") && name.starts_with(query);
    let requested = |query: &&[u8]| *query == name || (!setting && is_namespace(query));
    queries.iter().any(requested) || (!setting && queries.is_empty())
}

fn info_request(data: &[u8]) -> Option<(&[u8], Vec<u16>)> {
    let mut fields = Fields(data);
    let name = fields.counted()?;
    let requested: Vec<u16> = (0..fields.u16()?).map(|_| fields.u16()).collect::<Option<_>>()?;
    fields.0.is_empty().then_some((name, requested))
}

fn context_request(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let mut fields = Fields(data);
    let name = fields.counted()?;
    // The count may be wrong, so nothing is allocated for it: parsing ends with the data.
    let queries: Vec<&[u8]> = (0..fields.u32()?).map(|_| fields.counted()).collect::<Option<_>>()?;
    fields.0.is_empty().then_some((name, queries))
}

fn reply(output: &mut Vec<u8>, code: u32, kind: u32, data: &[u8]) {
    output.extend(ANSWER_MAGIC.to_be_bytes());
    output.extend(code.to_be_bytes());
    output.extend(kind.to_be_bytes());
    output.extend((data.len() as u32).to_be_bytes());
    output.extend(data);
}

fn refuse(output: &mut Vec<u8>, code: u32, kind: u32, why: &str) {
    reply(output, code, kind, why.as_bytes());
}
