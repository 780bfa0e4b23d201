//! The words that tell what a call does, what a user asks for and to whom a text speaks, in the languages that agents are used in most.
//! Lists of beginnings: "forward" is the beginning of "forwarding".

use std::collections::HashMap;
use std::sync::LazyLock;

/// Kinds of deeds, a bit each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Deeds(u8);

impl Deeds {
    pub(super) const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    const fn or(self, other: u8) -> Self {
        Self(self.0 | other)
    }
}

/// What a tool whose name says nothing does: it changes something.
const CHANGES: usize = 6;
/// Beginnings of words by what is done, in the order of the bits.
const DEEDS: [&str; 8] = [
    // Sends.
    "send forwa mail email reply answe respo write messa dm notif tell infor let conta post annou publi say share comme senden schic \
     sende schre antwo leite weite sag einla envia envía manda escri conte envoi envoy écris répon trans invia inolt scriv rispo отпр \
     отве пере напи gönde yanıt ilet wyśli wysli napis odpow envie encam stuur skick skriv 送 返信 发送 回复 보내 답장",
    // Shares.
    "share grant invit give acces link add permi teil freig gib compa inviti parta condi paylaş udost dodaj colla publi подел предос \
     共有 招待 分享 邀请 공유",
    // Pays.
    "pay trans refun buy order purch check tip vouch donat top payme zahl überw beste kauf paga compr pedir achet payer comma paie \
     ordin compra опла зака купи öde satın sipar zamów zamow kup zapła reord coupo gift book 払 注文 購入 支付 购买 결제 주문",
    // Deletes.
    "delet remov erase clean empty cance drop lösch entfe stori storn borra elimi suppr annul удал отме sil iptal usuń anulu unsub revok \
     decli ban mute 削除 取消 删除 삭제",
    // Runs.
    "run exec insta build test deplo comma scrip start resta merge commi push fix conve ausfü ejecu exécu запу çalış uruch 実行 运行 실행",
    // Opens.
    "open visit go click folge öffne abre ouvre откр aç otwór 開 打开 열",
    // Changes.
    "updat chang set edit move renam creat sched put enter submi regis log save label tag mark fill make recor note proce appro sign file \
     sort prepa aktua änder setz trag erste buch versc cambi crea reser pon añade modif mets crée réser обно изме созд günce oluşt ekle \
     zmień utwór zapis inscr resta upgra trans 更新 作成 予約 修改 创建 변경 생성",
    // Switches.
    "unloc lock turn switc heat dim play stop schal encie apaga allum вклю włąc 解 施錠 켜",
];
static DEED_OF: LazyLock<HashMap<&str, u8>> = LazyLock::new(|| {
    let mut known = HashMap::new();
    for (at, words) in DEEDS.iter().enumerate() {
        for word in words.split_whitespace() {
            *known.entry(word).or_default() |= 1 << at;
        }
    }
    known
});

/// What words speak of; of none that is known, a change.
pub(super) fn deeds<'a>(words: impl Iterator<Item = &'a str>) -> Deeds {
    let said = spoken_of(words);
    if said == Deeds::default() { Deeds(1 << CHANGES) } else { said }
}

/// What words speak of.
pub(super) fn spoken_of<'a>(words: impl Iterator<Item = &'a str>) -> Deeds {
    words.fold(Deeds::default(), |sum, word| {
        let ends = word.char_indices().map(|(at, c)| at + c.len_utf8()).take(5);
        let begun = ends.filter_map(|end| DEED_OF.get(word.get(..end)?).map(|bits| (end, *bits)));
        // One or two letters are a word of their own, or a character of a script that has no others.
        let fits = |end: usize| end >= 3 || end == word.len();
        begun.filter(|(end, _)| fits(*end)).fold(sum, |sum, (_, bits)| sum.or(bits))
    })
}

/// First or last words of the names of tools that read.
const READERS: &str = "get list read search find lookup look fetch show view check count describe query status info history quota browse \
    summarize summarise ls cat grep stat stats logs tail head directory details report weather retrieve inspect preview load resolve scan \
    glob websearch suchen lesen anzeigen auflisten holen leer buscar ver listar consultar historial obtener lire chercher lister voir \
    consulter trouver найти прочитать показать список прочесть ara oku listele göster leggi cerca elenca mostra ler lees zoek toon czytaj \
    szukaj pokaz znajdź 検索 取得 一覧 查询 读取 搜索 todo think plan task";

/// Whether a tool of this name only reads.
pub(super) fn only_reads(name: &[String]) -> bool {
    let reads = |word: &String| READERS.split_whitespace().any(|reader| reader == word);
    name.first().is_some_and(reads) || name.last().is_some_and(reads)
}

/// Names of arguments that say where something goes.
const TARGETS: &str = "to an kime кому with recipient recipients account email mail dest destination target url link channel canal kanal \
    shop for fuer für a para do iban address adresse invite invited gast guest mirror nach audience payee user member attendees cc bcc \
    webhook empfänger who whom at endpoint host repo remote";

pub(super) fn is_target(key: &str) -> bool {
    let last = key.rsplit(['_', '-', '.']).next().unwrap_or(key);
    TARGETS.split_whitespace().any(|name| name == key || name == last)
}

/// Ends of hosts.
const TOP_LEVEL: &str = "com net org io dev test example app co info biz me xyz site online cloud ai eu uk de fr es it nl pl ru se no fi \
    dk ch at be pt br mx ar in jp cn kr tr us ca au nz za local internal";

pub(super) fn is_top_level(label: &str) -> bool {
    TOP_LEVEL.split_whitespace().any(|name| name == label)
}

/// The words of a tool's name, in small letters.
pub(super) fn of_name(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_small = false;
    for c in name.chars().take(128) {
        if !c.is_alphanumeric() || c.is_uppercase() && was_small {
            words.push(String::new());
        }
        was_small = c.is_lowercase();
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The words of a text.
pub(super) fn split(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// What a text calls whoever reads it for somebody, at the beginning of a word.
const READER: &[&str] = &[
    "assistan",
    "agent",
    "bot ",
    "bots ",
    "ai ",
    "automat",
    "whoever",
    "whichever",
    "reader",
    "helper",
    "asistent",
    "assistent",
    "asystent",
    "helfer",
    "lector",
    "asistente",
    "помощник",
    "ассистент",
    "yardımcı",
    "lecteur",
    "助手",
    "アシスタント",
    "エージェント",
    "助理",
    "代理",
    "에이전트",
    "비서",
];

/// Whether it speaks to such a reader. `text` is in small letters.
pub(super) fn names_reader(text: &str) -> bool {
    READER.iter().any(|word| {
        text.match_indices(word).any(|(at, _)| {
            let before = text.get(..at).and_then(|before| before.chars().next_back());
            !word.is_ascii() || before.is_none_or(|c| !c.is_alphanumeric())
        })
    })
}

/// How users ask for what was read to be used: whole words, with one blank between them.
const DELEGATES: &[&str] = &[
    "as it",
    "as he",
    "as she",
    "as they",
    "as the",
    "as told",
    "as described",
    "as written",
    "as listed",
    "as instructed",
    "it says",
    "it lists",
    "it names",
    "it asks",
    "it describes",
    "it tells",
    "he says",
    "she says",
    "they say",
    "he asks",
    "she asks",
    "they ask",
    "he wants",
    "she wants",
    "they want",
    "he needs",
    "she needs",
    "they need",
    "he suggests",
    "she suggests",
    "they suggest",
    "she lists",
    "he lists",
    "accordingly",
    "carry out",
    "carry it out",
    "carry this out",
    "do it",
    "do what",
    "do so",
    "do that",
    "do step",
    "do steps",
    "from there",
    "the link",
    "a link",
    "those steps",
    "the steps",
    "the plan in",
    "its instructions",
    "the instructions in",
    "step",
    "steps",
    "lists the",
    "lists what",
    "on the list",
    "everything on it",
    "the first item",
    "asks for",
    "asked for",
    "asked me for",
    "asked about",
    "asked me about",
    "asked to",
    "reply",
    "replies",
    "replying",
    "answer her",
    "answer him",
    "answer them",
    "answer it",
    "to her",
    "to him",
    "to them",
    "written by me",
    "according to",
    "follow the",
    "follow it",
    "follow its",
    "apply",
    "suggestion",
    "included",
    "what it says",
    "whatever it says",
    "mention",
    "antworte",
    "antworten",
    "beantworte",
    "bestell das",
    "wie dort",
    "wie es",
    "laut",
    "was fehlt",
    "steht",
    "respóndele",
    "responde",
    "contesta",
    "como dice",
    "como indica",
    "como pide",
    "réponds",
    "applique",
    "comme indiqué",
    "ответь",
    "ответьте",
    "odpisz",
    "odpowiedz",
    "rispondi",
    "come dice",
    "come scritto",
    "yanıtla",
    "svara",
    "beantwoord",
    "responda",
];
/// The same in scripts that part no words.
const DELEGATES_ANYWHERE: &[&str] = &["返信", "回复", "按照", "通り", "とおり", "のとおり", "답장", "대로"];

/// Whether a user asks for what was read to be used.
pub(super) fn delegates(plain: &str) -> bool {
    let has = |phrase: &&str| plain.match_indices(*phrase).any(|(at, _)| is_whole(plain, at, phrase.len()));
    DELEGATES.iter().any(has) || DELEGATES_ANYWHERE.iter().any(|word| plain.contains(word))
}

fn is_whole(plain: &str, at: usize, len: usize) -> bool {
    let bytes = plain.as_bytes();
    let is_edge = |byte: Option<&u8>| byte.is_none_or(|byte| *byte == b' ');
    (at == 0 || is_edge(bytes.get(at - 1))) && is_edge(bytes.get(at + len))
}

/// What questions and requests to be told something begin with.
const QUESTIONS: &str = "summar what which who whose when where how tell list any is are did has have does explain show look read check \
    count find gist compare review translate proofread was welche welcher welches wann wer wie zeig fass cuánt qué quién cuál quel qui combien quand \
    résume kaç quanto quem qual ile kto kiedy кто сколько какие какая czy";

/// Whether a user asks to be told something. Words as in [`delegates`].
pub(super) fn is_question(plain: &str) -> bool {
    let begins = |word: &str| {
        QUESTIONS.split_whitespace().any(|begin| if begin.len() > 5 { word.starts_with(begin) } else { word == begin })
    };
    plain.split(' ').any(begins) || plain.contains("要約") || plain.contains("总结") || plain.contains("教えて")
}

/// Whether it ends as questions do.
pub(super) fn ends_as_question(text: &str) -> bool {
    let text = text.trim_end();
    ["?", "？", "か。", "か", "吗", "吗。", "까"].iter().any(|end| text.ends_with(end))
}

/// Words with one blank between them.
pub(super) fn plain(text: &str) -> String {
    split(text).collect::<Vec<_>>().join(" ")
}
