//! Meta requests and their exact replies.

use crate::table::Case;

pub const CASES: &[Case] = &[
    Case { name: "mn", requests: "mn|", replies: "MN|" },
    Case {
        name: "mg of a missing key",
        requests: "mg a|mg a v k Oxy|mg a v q|mn|",
        replies: "EN|EN ka Oxy|MN|",
    },
    Case {
        name: "mg returns what it is requested for",
        requests: "set a 5 0 3|abc|mg a|mg a v|mg a s v t f|mg a c|mg a k Oabc v|mg a q v|mn|",
        replies: "STORED|HD|VA 3|abc|VA 3 s3 t-1 f5|abc|HD c#|VA 3 ka Oabc|abc|VA 3|abc|MN|",
    },
    Case {
        name: "mg reports accesses",
        requests: "ms a 1|1|mg a h l t|mg a h u|mg a h|ms b 1|1|mg b u h|mg b h|",
        replies: "HD|HD h0 l0 t-1|HD h1|HD h1|HD|HD h0|HD h0|",
    },
    Case {
        name: "ms modes",
        requests: "ms a 1 MR|1|ms a 1 ME|2|ms a 1 ME|3|ms a 1 MA|4|ms a 1 MP|5|mg a v|ms a 1 MS F7|6|mg a v f|ms a 1 MX|1|ms a 1 MXX|1|",
        replies: "NS|HD|NS|HD|HD|VA 3|524|HD|VA 1 f7|6|CLIENT_ERROR invalid mode for ms M token|CLIENT_ERROR incorrect length for M token|",
    },
    Case {
        name: "ms returns key, opaque and CAS number",
        requests: "ms a 1 k Oo c|1|ms a 1 q|2|ms a 1 ME q Oo|3|ms a 0 T30|||mg a t|",
        replies: "HD ka Oo c#|NS Oo|HD|ERROR|HD t30|",
    },
    Case {
        name: "ms with a CAS number",
        requests: "ms a 1 C1|1|ms a 1|1|ms a 1 C1|2|ms a 1 MA C1|2|mg a v|",
        replies: "NF|HD|EX|EX|VA 1|1|",
    },
    Case {
        name: "ms in error discards its value",
        requests: "ms a 4 Zx|quit|ms a 4 F1 F2|quit|ms a|ms a x|ms a -1|ms a 2 Tx|qq|mn|",
        replies: "CLIENT_ERROR invalid flag|CLIENT_ERROR duplicate flag|CLIENT_ERROR bad command line format|\
                  CLIENT_ERROR bad command line format|CLIENT_ERROR bad command line format|\
                  CLIENT_ERROR bad token in command line format|MN|",
    },
    Case {
        name: "ms with a wrong value length",
        requests: "ms a 2 q|abcd|mn|",
        replies: "CLIENT_ERROR bad data chunk|ERROR|MN|",
    },
    Case {
        name: "base64 keys",
        requests: "ms Zm9v 1 b k|1|mg foo v k|mg Zm9v b v k|me Zm9v b|mg Zm9! b|md Zm9v b k|mg foo|",
        replies: "HD kZm9v b|VA 1 kZm9v b|1|VA 1 kZm9v b|1|ME Zm9v exp=-1 la=0 cas=# fetch=yes cls=1 size=#|\
                  CLIENT_ERROR error decoding key|HD kZm9v b|EN|",
    },
    Case {
        name: "md",
        requests: "md a|md a k Oo|ms a 1|1|md a C1|md a|mg a|ms a 1|1|md a q|mn|mg a|md a a|md a q q|",
        replies: "NF|NF ka Oo|HD|EX|HD|EN|HD|MN|EN|CLIENT_ERROR invalid or duplicate flag|CLIENT_ERROR invalid or duplicate flag|",
    },
    Case {
        name: "stale item has one winner",
        requests: "ms a 1|1|md a I T30|mg a v c t|mg a v|mg a v|ms a 1|2|mg a v|",
        replies: "HD|HD|VA 1 c# t30 X W|1|VA 1 Z X|1|VA 1 Z X|1|HD|VA 1|2|",
    },
    Case {
        name: "vivify has one winner",
        requests: "mg a N30 v t|mg a N30 v t|ms a 1|1|mg a N30 v t|mg b N30 k t|",
        replies: "VA 0 t30 W||VA 0 t30 Z||HD|VA 1 t-1|1|HD kb t30 W|",
    },
    Case {
        name: "recache has one winner",
        requests: "ms a 1 T100|1|mg a R30 t|mg a R200 t|mg a R200 t|mg a R0|ms b 1|1|mg b R30|",
        replies: "HD|HD t100|HD t100 W|HD t100 Z|HD Z|HD|HD|",
    },
    Case {
        name: "mg changes the expiry",
        requests: "ms a 1 T100|1|mg a t T30 v|mg a T40 t|mg a T-1|mg a|mg a Tx|",
        replies: "HD|VA 1 t100|1|HD t40|HD|EN|CLIENT_ERROR bad token in command line format|",
    },
    Case {
        name: "ma",
        requests: "ma a|ma a N0 J13 v|ma a v|ma a D10 v|ma a MD D4 v t|ma a M- v|ma a M+ v k Oo|ma a MX|ma a Dx|ma a C1|ma a q|mg a v|",
        replies: "NF|VA 2|13|VA 2|14|VA 2|24|VA 2 t-1|20|VA 2|19|VA 2 ka Oo|20|CLIENT_ERROR invalid mode for ma M token|\
                  CLIENT_ERROR invalid or duplicate flag|EX|VA 2|21|",
    },
    Case {
        name: "ma with expiry and of no number",
        requests: "ma a N30 t|ma a T60 t|ms b 1|x|ma b|ma c N30 v c|",
        replies: "HD t30|HD t60|HD|CLIENT_ERROR cannot increment or decrement non-numeric value|VA 1 c#|0|",
    },
    Case {
        name: "me",
        requests: "me a|me|ms a 1|1|me a|",
        replies: "EN|CLIENT_ERROR bad command line format|HD|ME a exp=-1 la=0 cas=# fetch=no cls=1 size=#|",
    },
    Case {
        name: "malformed meta commands",
        requests: "mg|ms|md|ma|mg a v v|mg a !|mg a O0123456789012345678901234567890123456789|mg a k s t v f c l h q u b b|m|",
        replies: "ERROR|ERROR|ERROR|ERROR|CLIENT_ERROR duplicate flag|CLIENT_ERROR invalid flag|CLIENT_ERROR opaque token too long|CLIENT_ERROR duplicate flag|ERROR|",
    },
];
