//! The journey of a request, and the only place that orders its stages:
//!
//! ```text
//! serve     request after request: to our own API, or to the provider
//! exchange  the value that goes from stage to stage
//! request   the journey in order, and how it ends when a stage refuses
//! authenticate  whose it is, before its body is read
//! preflight  what a browser asks on behalf of a page
//! steer     which upstream or group it goes to, and what that says of its provider
//! parse     name it: whose, where to, under which ids
//! admit_request  loop, declared size, rate
//! target, websocket  forms of a target and of a handshake that are refused
//! look      inspect: read the body, find what is in it
//! changing  what is to be changed in the body
//! allow     the models and upstreams its sender may use
//! outside   hear: models and outside verdicts, where they are waited for
//! decide    what the findings mean for it
//! caps      token caps, and the estimate reserved against budgets
//! rewrite_request  the advisory; what the client is told
//! fenced    what became of the boundary defence, as metrics and the record tell it
//! gather    the beginning of an upload, before a connection is leased for it
//! attempts  the members of a group, one after the other, where asking again is safe
//! forward   ask, and relay what is answered
//! send      one sending of a request, and the head of its answer
//! credentials  whose credential the request carries
//! upload    the body, relayed as it arrives
//! upstream  write to the provider, await the head of its answer, while the client waits
//! answer_listener  interim responses and the head, from the first byte, also while the request is still being sent
//! tunnel    both directions of a WebSocket, once the provider has switched; speaks: by
//!           which path it is read, turns: what is said there, judge_turn: whether it may go on,
//!           answers: what the server says, tapped_turn: what looks at that before the client has it
//! relay     the answer, byte by byte as it comes, with a tap beside it
//! tapped    the tap itself, and how an answer ends that it stops
//! unread_answer  what of an answer nobody will read
//! unsent    behind an early answer: the rest of the upload
//! own_path  paths Weir answers itself, handed to the control thread
//! asking    asking the router, and the head of its answer
//! lines     lists of ours that are sent as they are read
//! ```
//!
//! The connection it stands on is `client`, its end `settle`, and what all of them work with `process`.

mod admit_request;
mod allow;
mod answer_listener;
mod answers;
mod asking;
mod attempts;
mod authenticate;
mod caps;
mod changing;
mod credentials;
mod decide;
mod exchange;
mod fenced;
mod forward;
mod gather;
mod judge_turn;
mod lines;
mod look;
mod operations;
mod outside;
mod own_path;
mod parse;
mod preflight;
mod relay;
mod request;
mod rewrite_request;
mod send;
mod serve;
mod speaks;
mod steer;
mod tapped;
mod tapped_turn;
mod target;
mod tunnel;
mod turns;
mod unread_answer;
mod unsent;
mod upload;
mod upstream;
mod websocket;

pub use serve::serve;
