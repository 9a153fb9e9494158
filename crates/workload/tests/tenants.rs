//! Who makes the requests of a trace, by every way that a trace is read and written.

#![allow(
    clippy::unwrap_used,
    reason = "a failed unwrap is a failed test; the exception in clippy.toml covers test functions only"
)]

use std::path::{Path, PathBuf};

use flashwright_workload::Workload;
use flashwright_workload::trace::{
    Access, Format, OpenOptions, Replay, ReplayConfig, Target, TenantsFrom, Writer, Written, open,
};
use tempfile::TempDir;

const KVCACHE: &str = "op_time,key,key_size,op,op_count,size,cache_hits,ttl,usecase,sub_usecase\n\
    1,a,1,GET,2,10,0,0,366387042,3003229276\n2,b,1,SET,1,10,0,0,web,\n3,c,1,GET,1,10,0,0,,\n\
    4,d,1,DELETE,1,0,0,0,366387042,3003229276\n";
const CDN: &str = "timestamp,cacheKey,OpType,objectSize,responseSize,responseHeaderSize,rangeStart,rangeEnd,TTL,SamplingRate,cache_hit,item_value,RequestHandler,cdn_content_type_id,vip_type\n\
    1000,k,1,100,110,10,-1,-1,60,1,0,0,24,-,4\n2000,l,1,100,110,10,-1,-1,60,1,0,0,7,9,4\n";

fn write(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// Everything that is asked for, and the names of those who ask, `-` for nobody.
fn read(path: &Path, format: &str, tenants: TenantsFrom) -> Result<(Vec<Access>, Vec<String>), String> {
    let options = OpenOptions { tenants, ..OpenOptions::default() };
    let mut trace = open(&[path], Some(format), &options).map_err(|error| error.to_string())?;
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while trace.next_batch(&mut batch).map_err(|error| error.to_string())? {
        all.extend_from_slice(&batch);
    }
    let names = trace.tenants();
    let name = |access: &Access| match access.tenant {
        Some(tenant) => names.of(tenant).unwrap().to_string(),
        None => "-".to_owned(),
    };
    let told = all.iter().map(name).collect();
    Ok((all, told))
}

fn names(text: &str, format: &str, tenants: TenantsFrom) -> Result<Vec<String>, String> {
    let folder = tempfile::tempdir().unwrap();
    read(&write(&folder, "trace.csv", text), format, tenants).map(|(_, names)| names)
}

fn columns(names: &[&str]) -> TenantsFrom {
    TenantsFrom::Columns(names.iter().map(|name| (*name).to_owned()).collect())
}

#[test]
fn each_format_names_the_tenant_by_its_own_columns() {
    let storage =
        "op_time,block_id,io_size,io_offset,user_name,user_namespace,op_name\n1,b,1,0,u,n,getChunkData.X\n";
    let plain = "ts,key,op,size,tenant\n1,k,GET,1,someone else\n2,k,GET,1,\n";
    for (format, text, expected) in [
        (
            "kvcache",
            KVCACHE,
            &["366387042/3003229276", "366387042/3003229276", "web", "-", "366387042/3003229276"][..],
        ),
        ("cdn", CDN, &["24/-/4", "7/9/4"]),
        ("storage", storage, &["n/u"]),
        ("twitter", "0,key,3,10,12,get,0\n0,key,3,10,,get,0\n", &["12", "-"]),
        ("plain", plain, &["someone else", "-"]),
        ("plain", "ts,key,op,size\n1,k,GET,1\n", &["-"]),
    ] {
        assert_eq!(names(text, format, TenantsFrom::Usual).unwrap(), expected, "{format}");
        let nobody = vec!["-".to_owned(); expected.len()];
        assert_eq!(names(text, format, TenantsFrom::Nothing).unwrap(), nobody, "{format}");
    }
}

#[test]
fn other_columns_can_be_chosen_and_those_that_cannot_are_an_error() {
    assert_eq!(names(CDN, "cdn", columns(&["vip_type", "requesthandler"])).unwrap(), ["4/24", "4/7"]);
    assert_eq!(names(KVCACHE, "kvcache", columns(&["cache_hits"])).unwrap(), ["0"; 5]);
    for (text, format, chosen, told) in [
        (CDN, "cdn", columns(&["viptype"]), "the header has no column `viptype` that is not used already"),
        (CDN, "cdn", columns(&["TTL"]), "the header has no column `TTL` that is not used already"),
        (
            KVCACHE,
            "kvcache",
            columns(&["usecase", "sub_usecase", "ttl"]),
            "`kvcache` traces take the tenant from at most 2 columns, not from usecase,sub_usecase,ttl",
        ),
        ("1 2 3\n", "webcachesim", columns(&["a"]), "`webcachesim` traces have no such columns"),
    ] {
        let error = names(text, format, chosen).unwrap_err();
        assert!(error.contains(told), "{error}");
    }
}

/// `csv` has one tenant column, whatever the header calls it.
#[test]
fn a_table_had_no_columns_to_take_the_tenant_from() {
    let table = "time,id,size,who,client\n1,a,10,x,p\n2,b,20,,q\nclient,who,size,id,time\nr,y,20,b,3\n";
    assert_eq!(names(table, "csv", TenantsFrom::Usual).unwrap(), ["p", "q", "r"]);
    assert_eq!(names(table, "csv", columns(&["WHO"])).unwrap(), ["x", "-", "y"]);
    let listed = "csv:key=2,size=3,tenant=client";
    assert_eq!(names(table, listed, columns(&["who"])).unwrap()[..2], ["x", "-"]);
    for (chosen, told) in [
        (columns(&["whom"]), "the header has no column `whom` that is not used already"),
        (columns(&["size"]), "the header has no column `size` that is not used already"),
        (
            columns(&["who", "client"]),
            "`csv` traces take the tenant from at most one column, not from who,client",
        ),
    ] {
        let error = names(table, "csv", chosen).unwrap_err();
        assert!(error.contains(told), "{error}");
    }
}

/// The first file's header tells of the columns of those behind it, and nothing does of those of a file without one.
#[test]
fn a_column_of_a_trace_without_a_header_was_chosen_without_a_word() {
    let error = names("0,5,GET,105\n1,6,GET,7\n", "plain", columns(&["foo"])).unwrap_err();
    assert!(error.contains("the file has no header to find the column `foo` by"), "{error}");
    assert_eq!(names("0,5,GET,105\n", "plain", TenantsFrom::Usual).unwrap(), ["-"]);
}

/// Both columns were there: it is their number that was wrong.
#[test]
fn two_columns_where_the_tenant_has_one_were_no_such_columns() {
    let error = names("ts,key,op,size,host,tenant\n0,5,GET,1,a,b\n", "plain", columns(&["host", "tenant"]));
    let error = error.unwrap_err();
    assert!(
        error.contains("`plain` traces take the tenant from at most one column, not from host,tenant"),
        "{error}"
    );
}

#[test]
fn a_header_in_another_order_was_a_wrong_row_where_columns_were_chosen() {
    let first = "key,op,size,host\n7,GET,100,a\n";
    let chosen = |text: &str| names(&format!("{first}{text}"), "kvcache", columns(&["host"]));
    assert_eq!(chosen("host,size,op,key\nb,200,GET,8\n").unwrap(), ["a", "b"]);
    // A header without the chosen column is a wrong row, and moves none.
    assert_eq!(chosen("size,op,key\n8,GET,200,b\n").unwrap(), ["a", "b"]);
    let remark = "# host,size,op,key\nb,200,GET,8\n";
    assert_eq!(names(remark, "kvcache", columns(&["host"])).unwrap(), ["b"]);
}

#[test]
fn a_plain_trace_keeps_them_and_what_has_no_room_for_them_says_how_many() {
    let folder = tempfile::tempdir().unwrap();
    let (accesses, told) = read(&write(&folder, "kv.csv", KVCACHE), "kvcache", TenantsFrom::Usual).unwrap();
    let trace = open(
        &[folder.path().join("kv.csv")],
        Some("kvcache"),
        &OpenOptions { tenants: TenantsFrom::Usual, ..OpenOptions::default() },
    );
    let mut trace = trace.unwrap();
    while trace.next_batch(&mut Vec::new()).unwrap() {}
    let convert = |name: &str, target: Target| -> Written {
        let mut writer =
            Writer::create(&folder.path().join(name), target).unwrap().with_tenants(trace.tenants());
        writer.write(&accesses).unwrap();
        writer.finish().unwrap()
    };
    let kept = convert("kept.csv", Target::Plain { ttl: true, tenant: true });
    assert_eq!((kept.tenants_left_out, kept.accesses), (0, 5));
    assert_eq!(read(&folder.path().join("kept.csv"), "plain", TenantsFrom::Usual).unwrap().1, told);
    assert_eq!(convert("lost.csv", Target::PLAIN).tenants_left_out, 4);
    assert_eq!(convert("lost.tr", Target::Webcachesim).tenants_left_out, 3, "the delete is lost as a whole");
    assert_eq!(convert("lost.bin", Target::OracleGeneral).tenants_left_out, 3);
}

/// `x,y` and `x,z` were both `x` when they were read back.
#[test]
fn a_name_with_a_comma_was_written_as_two_columns_of_a_plain_trace() {
    let folder = tempfile::tempdir().unwrap();
    let text = "time;key;size;tenant\n1;1;10;x,y\n2;2;10;x,z\n3;3;10;\"\"q\"\"\n4;4;10;\"r\n";
    let format = "csv:time,key,size,tenant";
    let options = OpenOptions { tenants: TenantsFrom::Usual, ..OpenOptions::default() };
    let mut trace = open(&[write(&folder, "table.csv", text)], Some(format), &options).unwrap();
    let mut batch = Vec::new();
    assert!(trace.next_batch(&mut batch).unwrap());
    let path = folder.path().join("plain.csv");
    let target = Target::Plain { ttl: false, tenant: true };
    let mut writer = Writer::create(&path, target).unwrap().with_tenants(trace.tenants());
    writer.write(&batch).unwrap();
    let written = writer.finish().unwrap();
    assert_eq!((written.accesses, written.tenants_left_out), (4, 3));
    assert_eq!(read(&path, "plain", TenantsFrom::Usual).unwrap().1, ["-", "-", "-", "\"r"]);
}

#[test]
fn a_replay_knows_the_names_of_those_whose_requests_it_hands_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(&folder, "kv.csv", KVCACHE);
    let replay = Replay::new(ReplayConfig::new(vec![path], Format::named("kvcache").unwrap()));
    let mut told = Vec::new();
    for source in &mut replay.sources(2, 0).unwrap() {
        while let Some(request) = source.next() {
            let name = request.tenant.map(|tenant| replay.tenants().of(tenant).unwrap().to_string());
            told.push((String::from_utf8(request.key.to_vec()).unwrap(), name));
        }
    }
    told.sort();
    let (one, web) = (Some("366387042/3003229276".to_owned()), Some("web".to_owned()));
    let expected = [("a", one.clone()), ("b", web), ("c", None), ("d", one)];
    assert_eq!(told, expected.map(|(key, name)| (key.to_owned(), name)));
}
