//! Texts that spans share, so that what comes again with every turn of a conversation is stored once.
//!
//! A request's pieces are gathered from the front into leaves of at least [`LEAF_BYTES_MIN`] bytes, and leaves that follow each
//! other into branches; both are cut where their own content says so, so that two requests that have something in common
//! have the same leaves there, whatever stands before. A span then names a dozen branches and leaves, and holds what is new and short
//! itself. Each text counts who names it. What nobody names is taken out in pieces (`sweep`).
//!
//! Invariants: the transaction that writes a span writes or counts its texts, so no span ever names a text that is not there; what is
//! remembered is taken out with its row, and forgotten when another process has written; names of two tenants have different keys.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::LazyLock;

use highway::{HighwayHash as _, HighwayHasher};
use rusqlite::{Connection, OptionalExtension};
use smallvec::{SmallVec, smallvec};
use weir_config::vocab::frame::Frame;
use weir_config::vocab::part::{PartKind, PartSide};

use super::known::Known;
use super::readers::Stop;
use super::tx::Tx;
use crate::encode::{
    self, Entries, Entry, Joining, Laid, Layout, Lying, Packed, Piece, Reframing, Side, Stored, Stretch,
};
use crate::error::ReadError;
use crate::error::WriteError;
use crate::record::SpanRecord;

/// Shorter runs of pieces stay in their span: naming them would take about as much.
const LEAF_BYTES_MIN: usize = 1024;
/// Messages of a conversation are shared from this size on: otherwise they are stored again with every turn.
const MESSAGES_BYTES_MIN: usize = 256;
/// Still shorter ones of a conversation are shared when they come again, stretches of its frame at once.
const SHORT_BYTES_MIN: usize = 128;
/// Children of a branch: it ends behind one whose name says so, which one in four does.
const BRANCH_MIN: usize = 2;
const BRANCH_MAX: usize = 16;
const BRANCH_ENDS: u128 = 0b11;
/// Texts made of texts, at most; a file that says otherwise is damaged.
const DEPTH_MAX: usize = 24;
/// What a shared text takes besides its body: its counts, the index and two rows.
const OVERHEAD_BYTES: i64 = 96;
/// Tenants whose keys are remembered.
const KEYS_MAX: usize = 4_096;
/// Single texts that may come again and are remembered, as a power of two; the first sight of one is kept in its span.
const SEEN_BITS: u32 = 15;
/// Shared texts taken out in one transaction.
const BATCH_TEXTS: i64 = 512;

/// What the writer remembers of shared texts. It may be forgotten at any time.
#[derive(Default)]
pub(super) struct Texts {
    known: Known,
    keys: HashMap<i64, (u64, u64)>,
    seen: Vec<u64>,
    packed: Packed,
    /// Texts that the spans on their way name, in the order in which they do, beyond what their rows already say: each row is written
    /// once, when the spans are.
    named: Vec<i64>,
    /// SQLite's count of what other connections have written.
    version: Option<i64>,
    /// What the spans on their way add to `text_sums`.
    sums: HashMap<i64, i64>,
}

/// A text that may be shared, and what it is made of.
struct Tree {
    name: u128,
    of: Of,
}

enum Of {
    /// Pieces, and the message of the last part before them.
    Pieces(Range<usize>, i64),
    /// A stretch of the frame.
    Stretch(usize),
    Texts(Vec<Tree>),
}

/// Where a run of pieces is to lie.
enum Place {
    Span(Range<usize>, i64),
    Shared(Tree),
}

impl Texts {
    pub(super) fn forget(&mut self) {
        self.known.clear();
        self.keys.clear();
        self.named.clear();
        self.sums.clear();
    }

    /// To be called at the beginning of every transaction: another process may have taken texts out.
    pub(super) fn catch_up(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        let version = conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        if self.version.replace(version) != Some(version) {
            self.known.clear();
        }
        Ok(())
    }

    /// Adds what was put in to the sums, and who names it to its rows; they are forgotten with it.
    pub(super) fn store_sums(&mut self, conn: &Connection) -> Result<(), WriteError> {
        self.named.sort_unstable();
        let mut once = SmallVec::<[i64; 64]>::new();
        for times in self.named.chunk_by(|one, other| one == other) {
            match times {
                [id] => once.push(*id),
                [id, ..] => count(conn, &[*id], times.len())?,
                [] => {}
            }
        }
        let mut rest = once.as_slice();
        while let Some(together) = COUNTED_TOGETHER.iter().find(|together| **together <= rest.len()) {
            let (these, others) = rest.split_at(*together);
            count(conn, these, 1)?;
            rest = others;
        }
        self.named.clear();
        for (tenant, bytes) in self.sums.drain() {
            let sql =
                "INSERT INTO text_sums (tenant, bytes) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET bytes = bytes + ?2";
            conn.prepare_cached(sql)?.execute((tenant, bytes))?;
        }
        Ok(())
    }

    /// Whether texts of the tenant that has this key came before, as far as is remembered; they have now. Nearly all that stand alone
    /// never do, so they are not packed for it.
    fn have_come(&mut self, key: (u64, u64), pieces: &[Piece<'_>]) -> bool {
        let mut hasher = hasher(key, SIGHT, pieces.len());
        for text in pieces.iter().filter_map(Piece::text) {
            hasher.append(text.as_bytes());
        }
        let sight = hasher.finalize64();
        if self.seen.is_empty() {
            self.seen = vec![0; 1 << SEEN_BITS];
        }
        let at = (sight & ((1 << SEEN_BITS) - 1)) as usize;
        self.seen.get_mut(at).is_some_and(|slot| std::mem::replace(slot, sight) == sight)
    }

    /// Counts a text that is there once more.
    fn name_again(&mut self, id: i64) -> i64 {
        self.named.push(id);
        id
    }
}

/// Texts that one statement counts, most first: what each statement takes by itself is more than what a row takes.
const COUNTED_TOGETHER: [usize; 4] = [64, 16, 4, 1];
static COUNTS: LazyLock<[String; COUNTED_TOGETHER.len()]> = LazyLock::new(|| {
    COUNTED_TOGETHER.map(|together| {
        format!("UPDATE OR FAIL texts SET refs = refs + ? WHERE id IN ({})", ["?"].repeat(together).join(", "))
    })
});

/// Says in the rows of these texts, as many as one statement counts, that they are named so many times more.
fn count(conn: &Connection, ids: &[i64], times: usize) -> Result<(), WriteError> {
    let Some(sql) = COUNTED_TOGETHER.iter().zip(&*COUNTS).find_map(|(of, sql)| (*of == ids.len()).then_some(sql))
    else {
        return Err(WriteError::Row(format!("no statement counts {} texts", ids.len())));
    };
    let mut statement = conn.prepare_cached(sql)?;
    statement.raw_bind_parameter(1, times as i64)?;
    for (at, id) in ids.iter().enumerate() {
        statement.raw_bind_parameter(at + 2, id)?;
    }
    let counted = statement.raw_execute()?;
    if counted < ids.len() {
        return Err(WriteError::Damage(format!("{} of the shared texts {ids:?} are not there", ids.len() - counted)));
    }
    Ok(())
}

// === putting in ===

/// Decides where the texts of a span are to lie, and puts in those that are shared.
pub(super) fn lay<'s>(
    tx: &mut Tx<'_>,
    tenant: i64,
    request: &'s Side<'_>,
    response: &'s Side<'_>,
    frame: &'s [Stretch<'s>],
) -> Result<Laid<'s>, WriteError> {
    let order = [request.order.as_slice(), &response.order];
    let (request, frame) = (lay_request(tx, tenant, &request.pieces)?, lay_frame(tx, tenant, frame)?);
    Ok(Laid { request, response: whole(&response.pieces), frame, order })
}

fn whole<'s>(pieces: &'s [Piece<'s>]) -> Entries<'s> {
    if pieces.is_empty() { Entries::new() } else { smallvec![Entry::Pieces { pieces, last: -1 }] }
}

fn lay_request<'s>(tx: &mut Tx<'_>, tenant: i64, pieces: &'s [Piece<'s>]) -> Result<Entries<'s>, WriteError> {
    let bytes: usize = pieces.iter().map(Piece::bytes).sum();
    if bytes < LEAF_BYTES_MIN {
        return Ok(whole(pieces));
    }
    let key = key_of(tx, tenant)?;
    // What is part of a conversation comes again with its next turn; what stands alone seldom does.
    let comes_again = pieces.iter().any(Piece::is_of_conversation);
    let mut last = -1;
    let messages_min = if comes_again { MESSAGES_BYTES_MIN } else { LEAF_BYTES_MIN };
    let chunks = chunks(pieces, messages_min);
    let mut places: SmallVec<[Place; 1]> = SmallVec::with_capacity(chunks.len());
    for chunk in chunks {
        let own = pieces.get(chunk.clone()).unwrap_or_default();
        let before = last;
        last = encode::last_message(own, last);
        let bytes = own.iter().map(Piece::bytes).sum::<usize>();
        let class = class(own.first());
        if bytes >= LEAF_BYTES_MIN || (comes_again && bytes >= SHORT_BYTES_MIN) {
            let at_once = comes_again || class == Some(Class::System);
            // A short run that grows with each turn is another one every time.
            if (at_once && bytes >= Class::run_min(class, messages_min)) || tx.texts.have_come(key, own) {
                let packed = &mut tx.texts.packed;
                packed.put(own, &mut before.clone());
                let name = name_of(key, PIECES, packed);
                places.push(Place::Shared(Tree { name, of: Of::Pieces(chunk, before) }));
                continue;
            }
        }
        match places.last_mut() {
            Some(Place::Span(range, _)) => range.end = chunk.end,
            _ => places.push(Place::Span(chunk, before)),
        }
    }
    if let [Place::Span(..)] = places.as_slice() {
        return Ok(whole(pieces));
    }
    let mut entries = Entries::new();
    let mut shared: Vec<Tree> = Vec::new();
    for place in places {
        match place {
            Place::Shared(tree) => shared.push(tree),
            Place::Span(range, last) => {
                refer_all(tx, tenant, key, Source::Pieces(pieces), std::mem::take(&mut shared), &mut entries)?;
                entries.push(Entry::Pieces { pieces: pieces.get(range).unwrap_or_default(), last });
            }
        }
    }
    refer_all(tx, tenant, key, Source::Pieces(pieces), shared, &mut entries)?;
    Ok(entries)
}

/// Stretches are shared at once: a frame is kept of conversations only, and the next turn has all of them but one.
fn lay_frame<'s>(tx: &mut Tx<'_>, tenant: i64, stretches: &'s [Stretch<'s>]) -> Result<Entries<'s>, WriteError> {
    let mut entries = Entries::new();
    if stretches.is_empty() {
        return Ok(entries);
    }
    let (key, source) = (key_of(tx, tenant)?, Source::Frame(stretches));
    let mut shared = Vec::new();
    for (at, stretch) in stretches.iter().enumerate() {
        if stretch.bytes() >= SHORT_BYTES_MIN {
            let packed = &mut tx.texts.packed;
            packed.put_stretch(stretch);
            shared.push(Tree { name: name_of(key, FRAME, packed), of: Of::Stretch(at) });
        } else {
            refer_all(tx, tenant, key, source, std::mem::take(&mut shared), &mut entries)?;
            entries.push(Entry::Stretch(*stretch));
        }
    }
    refer_all(tx, tenant, key, source, shared, &mut entries)?;
    Ok(entries)
}

/// What shared texts are made of.
#[derive(Clone, Copy)]
enum Source<'s> {
    Pieces(&'s [Piece<'s>]),
    Frame(&'s [Stretch<'s>]),
}

impl Source<'_> {
    /// Packs what a text is made of; a tree is of one source, so the others hold nothing.
    fn pack(self, of: &Of, packed: &mut Packed) {
        match (self, of) {
            (Self::Pieces(pieces), Of::Pieces(range, last)) => {
                packed.put(pieces.get(range.clone()).unwrap_or_default(), &mut last.clone());
            }
            (Self::Frame(stretches), Of::Stretch(at)) => {
                if let Some(stretch) = stretches.get(*at) {
                    packed.put_stretch(stretch);
                }
            }
            _ => packed.put(&[], &mut -1),
        }
    }
}

/// What names tell apart.
const PIECES: u8 = 0;
const BRANCH: u8 = 1;
const FRAME: u8 = 2;
/// What came before is told from what did not by its texts alone.
const SIGHT: u8 = 3;

/// Names these texts, gathered into branches.
fn refer_all<'s>(
    tx: &mut Tx<'_>,
    tenant: i64,
    key: (u64, u64),
    source: Source<'_>,
    shared: Vec<Tree>,
    entries: &mut Entries<'s>,
) -> Result<(), WriteError> {
    let trees = branches(key, shared);
    // Asked one after the other with nothing between, their waits for memory overlap.
    let known: SmallVec<[Option<i64>; BRANCH_MAX]> = trees.iter().map(|tree| tx.texts.known.get(tree.name)).collect();
    for (tree, known) in trees.iter().zip(known) {
        entries.push(Entry::Node(match known {
            Some(id) => tx.texts.name_again(id),
            None => refer(tx, tenant, source, tree)?,
        }));
    }
    Ok(())
}

/// Whose words pieces are, as far as they come and go together.
#[derive(PartialEq, Eq, Clone, Copy)]
enum Class {
    System,
    Tools,
    Messages,
}

fn class(piece: Option<&Piece<'_>>) -> Option<Class> {
    let part = piece?.part?;
    Some(match part.kind {
        PartKind::System => Class::System,
        PartKind::ToolDefinition => Class::Tools,
        _ => Class::Messages,
    })
}

impl Class {
    /// Bytes from which on a run of it is long enough.
    fn run_min(class: Option<Self>, messages_min: usize) -> usize {
        if class == Some(Self::Messages) { messages_min } else { LEAF_BYTES_MIN }
    }
}

/// Runs of pieces: each ends where it has enough, and where others begin to speak.
fn chunks(pieces: &[Piece<'_>], messages_min: usize) -> SmallVec<[Range<usize>; 2]> {
    let mut chunks = SmallVec::with_capacity(pieces.len());
    let (mut start, mut bytes, mut speaking) = (0, 0, None);
    for (at, piece) in pieces.iter().enumerate() {
        let speaks = class(Some(piece));
        if at > start && speaks.is_some() && speaking.is_some() && speaks != speaking {
            chunks.push(start..at);
            (start, bytes) = (at, 0);
        }
        speaking = speaks.or(speaking);
        bytes += piece.bytes();
        if bytes >= Class::run_min(speaking, messages_min) {
            chunks.push(start..at + 1);
            (start, bytes) = (at + 1, 0);
        }
    }
    if start < pieces.len() {
        chunks.push(start..pieces.len());
    }
    chunks
}

/// Gathers texts into branches, these into further ones, and so on; what fills no branch yet stays as it is.
fn branches(key: (u64, u64), mut level: Vec<Tree>) -> Vec<Tree> {
    let mut tail: Vec<Tree> = Vec::new();
    loop {
        let (mut closed, mut open) = (Vec::new(), Vec::new());
        for tree in level {
            let ends = tree.name & BRANCH_ENDS == 0;
            open.push(tree);
            if open.len() >= BRANCH_MAX || (ends && open.len() >= BRANCH_MIN) {
                closed.push(branch(key, std::mem::take(&mut open)));
            }
        }
        open.append(&mut tail);
        if closed.is_empty() {
            return open;
        }
        tail = open;
        level = closed;
    }
}

fn branch(key: (u64, u64), texts: Vec<Tree>) -> Tree {
    let mut hasher = hasher(key, BRANCH, 0);
    for text in &texts {
        hasher.append(&text.name.to_le_bytes());
    }
    Tree { name: name(hasher), of: Of::Texts(texts) }
}

fn name_of(key: (u64, u64), what: u8, packed: &Packed) -> u128 {
    let (head, text) = packed.bytes();
    let mut hasher = hasher(key, what, head.len());
    hasher.append(head);
    hasher.append(text);
    name(hasher)
}

/// A pseudo-random function under the tenant's key: nobody who does not know that can make two texts of one name.
fn hasher(key: (u64, u64), what: u8, head: usize) -> HighwayHasher {
    HighwayHasher::new(highway::Key([key.0, key.1, u64::from(what), head as u64]))
}

fn name(hasher: HighwayHasher) -> u128 {
    let [low, high] = hasher.finalize128();
    u128::from(low) | u128::from(high) << 64
}

/// The key of the tenant's names; made when it is first needed.
fn key_of(tx: &mut Tx<'_>, tenant: i64) -> Result<(u64, u64), WriteError> {
    if let Some(key) = tx.texts.keys.get(&tenant) {
        return Ok(*key);
    }
    let sql = "UPDATE tenants SET text_key = ifnull(text_key, randomblob(16)) WHERE id = ?1 RETURNING text_key";
    let key: [u8; 16] = tx.conn.prepare_cached(sql)?.query_row([tenant], |row| row.get(0))?;
    let key = u128::from_le_bytes(key);
    let key = (key as u64, (key >> 64) as u64);
    if tx.texts.keys.len() >= KEYS_MAX {
        tx.texts.keys.clear();
    }
    tx.texts.keys.insert(tenant, key);
    Ok(key)
}

/// The two halves of a name as columns.
const fn halves(name: u128) -> (i64, i64) {
    ((name as u64).cast_signed(), ((name >> 64) as u64).cast_signed())
}

const fn whole_name(a: i64, b: i64) -> u128 {
    a.cast_unsigned() as u128 | (b.cast_unsigned() as u128) << 64
}

/// Names a text once more; puts it in where it is not there.
fn refer(tx: &mut Tx<'_>, tenant: i64, source: Source<'_>, tree: &Tree) -> Result<i64, WriteError> {
    if let Some(id) = tx.texts.known.get(tree.name) {
        return Ok(tx.texts.name_again(id));
    }
    let id = match find(tx.conn, tenant, tree.name)? {
        Some(id) => tx.texts.name_again(id),
        None => put(tx, tenant, source, tree)?,
    };
    tx.texts.known.insert(tree.name, id);
    Ok(id)
}

fn find(conn: &Connection, tenant: i64, name: u128) -> rusqlite::Result<Option<i64>> {
    let (a, b) = halves(name);
    // To write the row at once and have it return its id would take longer: SQLite makes a table of what is returned.
    let sql = "SELECT id FROM texts WHERE name_a = ?1 AND name_b = ?2 AND tenant = ?3";
    conn.prepare_cached(sql)?.query_row((a, b, tenant), |row| row.get(0)).optional()
}

fn put(tx: &mut Tx<'_>, tenant: i64, source: Source<'_>, tree: &Tree) -> Result<i64, WriteError> {
    let branch;
    let body = match &tree.of {
        of @ (Of::Pieces(..) | Of::Stretch(_)) => {
            let packed = &mut tx.texts.packed;
            source.pack(of, packed);
            tx.encoder.encode_packed(packed, matches!(of, Of::Stretch(_))).map_err(|too_large| {
                WriteError::Row(format!("its {} bytes of text are more than a row can hold", too_large.0))
            })?
        }
        Of::Texts(texts) => {
            let children = texts.iter().map(|text| refer(tx, tenant, source, text)).collect::<Result<Vec<_>, _>>()?;
            branch = encode::encode_branch(&children);
            &branch
        }
    };
    let bytes = body.len() as i64 + OVERHEAD_BYTES;
    let (a, b) = halves(tree.name);
    let sql = "INSERT INTO texts (tenant, name_a, name_b, refs, bytes) VALUES (?1, ?2, ?3, 1, ?4)";
    tx.conn.prepare_cached(sql)?.execute((tenant, a, b, bytes))?;
    let id = tx.conn.last_insert_rowid();
    tx.conn.prepare_cached("INSERT INTO text_bodies (id, body) VALUES (?1, ?2)")?.execute((id, body))?;
    *tx.texts.sums.entry(tenant).or_default() += bytes;
    Ok(id)
}

// === taking out ===

/// What names these texts has gone.
pub(super) fn release(conn: &Connection, nodes: &[i64]) -> rusqlite::Result<()> {
    let mut statement = conn.prepare_cached("UPDATE texts SET refs = refs - 1 WHERE id = ?1")?;
    for id in nodes {
        statement.execute([id])?;
    }
    Ok(())
}

/// Whether there are texts that nobody names.
pub(super) fn any_idle(conn: &Connection) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT 1 FROM texts INDEXED BY texts_idle WHERE refs <= 0 LIMIT 1")?.exists([])
}

/// The same again and again, because what a text is made of may go with it.
pub(super) fn sweep_all(tx: &mut Tx<'_>, bytes_max: i64) -> Result<i64, WriteError> {
    let mut gone = 0;
    while gone < bytes_max {
        match sweep(tx, bytes_max - gone)? {
            0 => break,
            bytes => gone += bytes,
        }
    }
    Ok(gone)
}

/// Takes out some texts that nobody names, of about so many bytes; how many bytes they took.
pub(super) fn sweep(tx: &mut Tx<'_>, bytes_max: i64) -> Result<i64, WriteError> {
    let conn = tx.conn;
    let sql = "SELECT id, tenant, bytes, name_a, name_b FROM texts INDEXED BY texts_idle WHERE refs <= 0 ORDER BY id LIMIT ?1";
    let idle: Vec<(i64, i64, i64, u128)> = conn
        .prepare_cached(sql)?
        .query_map([BATCH_TEXTS], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, whole_name(row.get(3)?, row.get(4)?)))
        })?
        .collect::<Result<_, _>>()?;
    let mut gone = 0;
    for (id, tenant, bytes, name) in idle {
        if gone >= bytes_max {
            break;
        }
        tx.texts.known.remove(name);
        let sql = "SELECT body FROM text_bodies WHERE id = ?1";
        let body: Option<Vec<u8>> = conn.prepare_cached(sql)?.query_row([id], |row| row.get(0)).optional()?;
        // What cannot be read must not stop it from being taken out.
        if let Some(Ok(Stored::Branch(children))) = body.as_deref().map(encode::decode_stored) {
            release(conn, &children)?;
        }
        conn.prepare_cached("DELETE FROM text_bodies WHERE id = ?1")?.execute([id])?;
        conn.prepare_cached("DELETE FROM texts WHERE id = ?1")?.execute([id])?;
        conn.prepare_cached("UPDATE text_sums SET bytes = bytes - ?2 WHERE tenant = ?1")?.execute((tenant, bytes))?;
        gone += bytes;
    }
    Ok(gone)
}

// === reading ===

/// Puts a span's texts in their places; `charge` hears of each before it is kept, and may end it.
pub(super) fn fill(
    conn: &Connection,
    row: i64,
    layout: Layout,
    span: &mut SpanRecord,
    charge: &mut dyn FnMut(usize) -> Result<(), Stop>,
) -> Result<(), Stop> {
    if !layout.is_there {
        return Ok(());
    }
    let Layout { request, response, frame, .. } = layout;
    let mut filling = Filling { conn, row, charge };
    let (prompt, mut parts) = filling.side(PartSide::Request, request)?;
    let (answer, further) = filling.side(PartSide::Response, response)?;
    parts.extend(further);
    (span.prompt, span.response, span.parts) = (prompt, answer, parts);
    span.frame = filling.frame(frame)?;
    Ok(())
}

struct Filling<'a> {
    conn: &'a Connection,
    row: i64,
    charge: &'a mut dyn FnMut(usize) -> Result<(), Stop>,
}

type SideRead = (Option<String>, Vec<weir_config::vocab::part::PartRecord>);

impl Filling<'_> {
    fn side(&mut self, side: PartSide, entries: Vec<Lying>) -> Result<SideRead, Stop> {
        let mut joining = Joining::of(side);
        for entry in entries {
            match entry {
                Lying::Pieces(pieces) => self.add(&mut joining, pieces)?,
                Lying::Node(id) => self.text(&mut joining, id, 0)?,
                Lying::Stretch(_) => return Err(self.damaged()),
            }
        }
        Ok(joining.end())
    }

    fn add(&mut self, joining: &mut Joining, pieces: Vec<encode::ReadPiece>) -> Result<(), Stop> {
        for piece in pieces {
            (self.charge)(piece.weight())?;
            joining.add(piece).map_err(|_| self.damaged())?;
        }
        Ok(())
    }

    fn text(&mut self, joining: &mut Joining, id: i64, depth: usize) -> Result<(), Stop> {
        match self.stored(id, encode::decode_stored)? {
            Stored::Leaf(pieces) => self.add(joining, pieces),
            Stored::Stretch(_) => Err(self.damaged()),
            Stored::Branch(_) if depth >= DEPTH_MAX => Err(self.damaged()),
            Stored::Branch(children) => children.into_iter().try_for_each(|id| self.text(joining, id, depth + 1)),
        }
    }

    fn frame(&mut self, entries: Vec<Lying>) -> Result<Option<Box<Frame>>, Stop> {
        let mut reframing = Reframing::default();
        for entry in entries {
            match entry {
                Lying::Stretch(stretch) => self.add_stretch(&mut reframing, stretch)?,
                Lying::Node(id) => self.stretches(&mut reframing, id, 0)?,
                Lying::Pieces(_) => return Err(self.damaged()),
            }
        }
        Ok(reframing.end())
    }

    fn add_stretch(&mut self, reframing: &mut Reframing, stretch: encode::ReadStretch) -> Result<(), Stop> {
        (self.charge)(stretch.weight())?;
        reframing.add(stretch).map_err(|_| self.damaged())
    }

    fn stretches(&mut self, reframing: &mut Reframing, id: i64, depth: usize) -> Result<(), Stop> {
        match self.stored(id, encode::decode_stretch)? {
            Stored::Stretch(stretch) => self.add_stretch(reframing, stretch),
            Stored::Branch(children) if depth < DEPTH_MAX => {
                children.into_iter().try_for_each(|id| self.stretches(reframing, id, depth + 1))
            }
            Stored::Leaf(_) | Stored::Branch(_) => Err(self.damaged()),
        }
    }

    fn stored(&self, id: i64, decode: fn(&[u8]) -> Result<Stored, encode::Damaged>) -> Result<Stored, Stop> {
        let mut statement = self.conn.prepare_cached("SELECT body FROM text_bodies WHERE id = ?1")?;
        let mut rows = statement.query([id])?;
        let Some(row) = rows.next()? else { return Err(self.damaged()) };
        let body = row.get_ref(0)?.as_blob().map_err(|_| self.damaged())?;
        decode(body).map_err(|_| self.damaged())
    }

    fn damaged(&self) -> Stop {
        Stop::Refused(ReadError::Damaged { row: self.row })
    }
}
