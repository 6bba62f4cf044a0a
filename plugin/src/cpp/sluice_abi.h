/*
  The seam between the C++ handler and the Rust plugin, in C.

  src/abi.rs mirrors every structure and function of this file; tests/abi.rs compares the two.
  Functions that return int give 0 or an error number of my_base.h (HA_ERR_*); the text that
  belongs to an error is fetched with sluice_message(). No panic and no exception crosses.
*/
#ifndef SLUICE_ABI_H
#define SLUICE_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How the bytes of a column stand in the record. */
enum sluice_kind
{
  SLUICE_UNSIGNED= 1, /* little-endian, 1..8 bytes: integers, YEAR, ENUM, SET, DATE */
  SLUICE_SIGNED= 2,   /* little-endian, 1..8 bytes */
  SLUICE_FLOAT= 3,
  SLUICE_DOUBLE= 4,
  SLUICE_ORDERED= 5,  /* fixed bytes that compare with memcmp: DECIMAL, TIME, BINARY, BIT */
  SLUICE_CHAR= 6,     /* fixed, padded with spaces */
  SLUICE_VARCHAR= 7,  /* length of 1 or 2 bytes, then the value */
  SLUICE_BLOB= 8      /* length of 1..4 bytes, then a pointer */
};

/* How a string column compares. */
enum sluice_order
{
  SLUICE_ORDER_BINARY= 0,
  SLUICE_ORDER_PAD= 1,
  SLUICE_ORDER_NOPAD= 2,
  SLUICE_ORDER_STRIPPED= 3 /* without its trailing spaces, then as NOPAD */
};

enum sluice_find
{
  SLUICE_FIND_EXACT= 0,
  SLUICE_FIND_AT_OR_AFTER= 1,
  SLUICE_FIND_AT_OR_BEFORE= 2,
  SLUICE_FIND_AFTER= 3,
  SLUICE_FIND_BEFORE= 4,
  SLUICE_FIND_LAST= 5
};

enum sluice_lock
{
  SLUICE_LOCK_NONE= 0,
  SLUICE_LOCK_SHARED= 1,
  SLUICE_LOCK_EXCLUSIVE= 2
};

enum sluice_wait
{
  SLUICE_WAIT= 0,
  SLUICE_NOWAIT= 1,
  SLUICE_SKIP_LOCKED= 2
};

#define SLUICE_COLUMN_VIRTUAL 1u /* the server computes it when it reads a row */
#define SLUICE_COLUMN_SPACES_COUNT 2u /* see Column::spaces_count in src/shape.rs */
/* Of a write to the binary log: as in src/binlog.rs. */
#define SLUICE_BINLOG_DIRECT 1u
#define SLUICE_BINLOG_FULL 2u
#define SLUICE_BINLOG_FAILED 4u
#define SLUICE_BINLOG_SYNC 8u
#define SLUICE_BINLOG_ON 1u /* of a start */
#define SLUICE_BINLOG_ABANDON 2u
#define SLUICE_BINLOG_RUNNING 4u
#define SLUICE_BINLOG_INSIDE 0u
#define SLUICE_BINLOG_DURABLE 1u
#define SLUICE_BINLOG_SERVER 2u

#define SLUICE_PART_REVERSE 1u
#define SLUICE_PART_PREFIX 2u
#define SLUICE_KEY_UNIQUE 1u
#define SLUICE_NO_KEY 0xffffffffu
#define SLUICE_XID_BYTES 128
#define SLUICE_CREATE_TEMPORARY 1u
#define SLUICE_CREATE_ENCRYPTED 2u
#define SLUICE_ENCRYPT_OFF 0u
#define SLUICE_ENCRYPT_ALL 1u
#define SLUICE_ENCRYPT_TABLES 2u
#define SLUICE_COMPRESSION_DEFAULT 0xffffffffu

typedef struct sluice_column
{
  uint32_t kind;
  uint32_t offset;
  uint32_t length; /* bytes of the value at most, without the length bytes */
  uint32_t null_offset;
  uint8_t null_bit; /* 0: NOT NULL */
  uint8_t length_bytes;
  uint8_t order;
  uint8_t space_bytes;
  uint8_t space[4]; /* a space in this character set */
  uint32_t char_bytes_max;
  uint32_t expansion; /* weight bytes per source byte */
  uint32_t collation_id;
  uint32_t levels; /* of weights, one bit each; 0: the weight string is one piece */
  const void *charset;
  uint64_t fingerprint; /* of the collation's weights, for columns of keys; else 0 */
  uint32_t flags;
  uint32_t reserved;
} sluice_column;

typedef struct sluice_key_part
{
  uint32_t column;
  uint32_t length;
  uint32_t flags;
  uint32_t image_bytes; /* in a key image of the server */
} sluice_key_part;

typedef struct sluice_key
{
  const sluice_key_part *parts;
  uint32_t part_count;     /* as declared */
  uint32_t extended_count; /* with the parts of the primary key that the server appends */
  uint32_t flags;
  uint32_t reserved;
} sluice_key;

typedef struct sluice_table
{
  const sluice_column *columns;
  const sluice_key *keys;
  const uint8_t *defaults; /* a record with every default */
  uint32_t column_count;
  uint32_t key_count;
  uint32_t primary; /* 0 or SLUICE_NO_KEY */
  uint32_t record_bytes;
  uint32_t null_bytes;
  uint32_t reserved;
} sluice_table;

typedef struct sluice_config
{
  const char *data_dir;
  const char *log_dir; /* may be null */
  uint64_t buffer_pool_bytes;
  uint64_t log_capacity_bytes;
  uint32_t flush_at_commit; /* 0, 1, 2 */
  uint32_t compression;     /* 0 none, 1 lz4, 2 zstd; its level in the second byte */
  uint32_t log_compression; /* 0 none, 1 lz4, 2 zstd, 3 auto */
  uint32_t space_amplification_pct;
  uint32_t encrypts;          /* SLUICE_ENCRYPT_*: what is written from now on */
  uint32_t encryption_key_id; /* under the newest version of this key */
  uint32_t rotate_key_age;    /* 0: no rotation in the background */
  uint32_t page_deltas;       /* 0 or 1 */
} sluice_config;

/* performance_schema: files by kind, their operations, waits and threads, as in src/watch.rs. */
enum sluice_file_operation
{
  SLUICE_FILE_READ= 0,
  SLUICE_FILE_WRITE= 1,
  SLUICE_FILE_SYNC= 2,
  SLUICE_FILE_RESIZE= 3
};

/* An event that began and has not ended. */
typedef struct sluice_watch
{
  void *locker; /* NULL: nobody wants to know */
  uint64_t state[32];
} sluice_watch;

/* What Rust asks of the server. A session is the address of its THD. */
typedef struct sluice_host
{
  void (*log)(int32_t level, const char *text, size_t length);
  void (*lock_wait)(uint64_t waiter, uint64_t holder);
  void (*wait_begin)(uint64_t session);
  void (*wait_end)(uint64_t session);
  int32_t (*killed)(uint64_t session);
  size_t (*weights)(const void *charset, uint32_t levels, uint8_t *to, size_t room,
                    const uint8_t *from, size_t length);
  size_t (*prefix)(const void *charset, const uint8_t *from, size_t length, size_t chars);
  /* NULL: nobody wants to know about this file. */
  void *(*file_opened)(uint32_t kind, const char *path);
  void (*file_closed)(void *file);
  /* Removed, or renamed: the name is no file's. */
  void (*file_removed)(const char *path);
  void (*file_begin)(void *file, uint32_t operation, size_t bytes, sluice_watch *watch);
  void (*file_end)(size_t bytes, sluice_watch *watch);
  void (*pause_begin)(uint32_t what, sluice_watch *watch);
  void (*pause_end)(sluice_watch *watch);
  void (*thread_begin)(uint32_t which);
  void (*thread_end)(void);
  /* Newest version of a key; 0 or all bits: there is none. */
  uint32_t (*key_newest)(uint32_t id);
  /* Bytes of a key, at most room; 0: it is not there. */
  uint32_t (*key)(uint32_t id, uint32_t version, uint8_t *to, uint32_t room);
} sluice_host;

typedef struct sluice_xid
{
  int64_t format;
  int64_t gtrid_bytes;
  int64_t bqual_bytes;
  uint8_t data[SLUICE_XID_BYTES];
} sluice_xid;

typedef struct sluice_status_value
{
  char name[64];
  uint64_t value;
} sluice_status_value;

/* Bytes written by cause since the engine was opened, as in engine/src/db/writes.rs. */
typedef struct sluice_writes
{
  uint64_t log;
  uint64_t build;
  uint64_t eviction;
  uint64_t checkpoint;
  uint64_t gc;
  uint64_t other;
  uint64_t total;
} sluice_writes;

typedef struct sluice_info
{
  uint64_t rows;
  uint64_t data_bytes;
  uint64_t index_bytes;
  uint64_t next_autoinc;
  uint64_t clustered_pages;
  uint64_t statistics_version; /* grows when statistics are refreshed */
} sluice_info;

#define SLUICE_STATISTICS_PARTS_MAX 64

typedef struct sluice_key_statistics
{
  uint64_t entries;
  uint64_t leaf_pages;
  /* by key parts, extended ones included: values of the key up to this part */
  uint64_t distinct[SLUICE_STATISTICS_PARTS_MAX];
  uint32_t count; /* of distinct; 0: nothing is known */
  uint32_t reserved;
} sluice_key_statistics;

typedef struct sluice_range
{
  uint64_t rows;
  uint64_t first_page; /* leaves of the two ends */
  uint64_t last_page;
} sluice_range;

/* A question for AUTO_INCREMENT values: how many rows are expected, the column's largest value. */
typedef struct sluice_autoinc
{
  uint64_t offset;
  uint64_t increment;
  uint64_t rows;
  uint64_t max;
  uint64_t is_alter;
} sluice_autoinc;

/* How a row with an AUTO_INCREMENT value ended: the statement's column was filled and the row is
   written (GIVEN), met a duplicate in a statement that goes on behind it (REPLACES), or failed; an
   UPDATE changed the value; a row with it went to the table, from wherever (STORED). */
enum
{
  SLUICE_AUTOINC_GIVEN= 0,
  SLUICE_AUTOINC_REPLACES= 1,
  SLUICE_AUTOINC_FAILED= 2,
  SLUICE_AUTOINC_UPDATED= 3,
  SLUICE_AUTOINC_STORED= 4
};

/* One end of a range, as the server gives it. */
typedef struct sluice_bound
{
  const uint8_t *image; /* null: no bound */
  size_t image_bytes;
  uint32_t parts;
  uint32_t inclusive;
} sluice_bound;

typedef struct sluice_session sluice_session;
typedef struct sluice_handler sluice_handler;
typedef struct sluice_alter sluice_alter;
typedef void (*sluice_print)(void *context, const char *text, size_t length);
/* name: of a table, or a word in parentheses for what is no table's. Not 0: no more rows. */
typedef int32_t (*sluice_writes_row)(void *context, const char *name, size_t length,
                                     const sluice_writes *bytes);

/* The engine */
int32_t sluice_start(const sluice_config *config, const sluice_host *host);
int32_t sluice_stop(void);
size_t sluice_message(char *to, size_t room);
int32_t sluice_flush_log(void);
/* Keeps what a copy of the files needs, until the end; the end does nothing if there is no backup. */
int32_t sluice_backup_begin(void);
int32_t sluice_backup_end(void);
int32_t sluice_set_flush_at_commit(uint32_t mode);
int32_t sluice_set_buffer_pool_bytes(uint64_t bytes);
int32_t sluice_set_log_capacity_bytes(uint64_t bytes);
int32_t sluice_set_log_compression(uint32_t compression); /* as in sluice_config */
int32_t sluice_set_space_amplification(uint32_t pct);
int32_t sluice_set_rotate_key_age(uint32_t versions);
int32_t sluice_set_page_deltas(uint32_t is_on);
/* recalculates: in the background when enough has changed */
int32_t sluice_set_statistics(uint32_t recalculates, uint64_t sample_pages);
size_t sluice_status(sluice_status_value *to, size_t room);
int32_t sluice_status_text(sluice_print print, void *context);
int32_t sluice_table_writes(sluice_writes_row row, void *context);
int32_t sluice_interrupt(uint64_t session);

/* Tables by name "database/table" */
/* compression: as in sluice_config, or SLUICE_COMPRESSION_DEFAULT */
/* thd: asked whether it was killed, while there is no room in the log. 0: nobody's */
int32_t sluice_create_table(uint64_t thd, const char *name, const sluice_table *table,
                            uint64_t autoinc_start, uint32_t compression, uint32_t flags);
/* What sessions of an earlier process left behind. */
int32_t sluice_drop_temporary_tables(void);
int32_t sluice_drop_table(const char *name);
int32_t sluice_rename_table(uint64_t thd, const char *from, const char *to);
int32_t sluice_truncate_table(uint64_t thd, const char *name);

/* Sessions and transactions */
int32_t sluice_session_open(uint64_t id, sluice_session **to);
int32_t sluice_session_close(sluice_session *session);
int32_t sluice_statement_start(sluice_session *session, uint32_t isolation, uint64_t timeout_ms);
int32_t sluice_statement_end(sluice_session *session);
int32_t sluice_statement_rollback(sluice_session *session);
/* DDL waits until no prepared transaction has changes in the table; fine if there is none. */
int32_t sluice_wait_for_prepared(sluice_session *session, const char *name, uint64_t timeout_ms);
uint64_t sluice_table_count(void);
/* Drops all tables whose name begins so. */
int32_t sluice_drop_database(sluice_session *session, const char *prefix, uint64_t timeout_ms);
int32_t sluice_open_snapshot(sluice_session *session);
/* hooked: the server chose the XID, and its events will pass the hook in the binary log. */
int32_t sluice_prepare(sluice_session *session, const sluice_xid *xid, int32_t hooked);
/* covered: the hook in the binary log saw the events of this transaction. */
int32_t sluice_commit_ordered(sluice_session *session, int32_t covered);
/* binlog_decides: the binary log is the coordinator and tells at recovery who has committed. */
int32_t sluice_commit(sluice_session *session, int32_t binlog_decides);
int32_t sluice_rollback(sluice_session *session);
int32_t sluice_savepoint_set(sluice_session *session, void *to);
int32_t sluice_savepoint_rollback(sluice_session *session, const void *from);
/* 1: the transaction holds no lock of rows or ranges */
int32_t sluice_holds_no_locks(const sluice_session *session);
size_t sluice_recover(sluice_xid *to, size_t room);
int32_t sluice_commit_xid(const sluice_xid *xid);
int32_t sluice_rollback_xid(const sluice_xid *xid);

#define SLUICE_SCAN_LEFT 0
#define SLUICE_SCAN_KNOWN 1
#define SLUICE_SCAN_ASIDE 2
#define SLUICE_SCAN_NOTHING 3

/* The binary log. Called under LOCK_log, but for start, stop, prepare_switch, covers and step.
   base: the name of its files without a number; null, and no index, without a binary log. */
int32_t sluice_binlog_start(const char *index, const char *base, uint32_t flags);
int32_t sluice_binlog_stop(void);
/* Before the switch is set ON; an error leaves it as it is. */
int32_t sluice_binlog_prepare_switch(void);
int32_t sluice_binlog_set_on(uint32_t on);
int32_t sluice_binlog_opened(const char *path, uint64_t pos);
int32_t sluice_binlog_before_write(void);
int32_t sluice_binlog_wrote(uint64_t pos, const uint8_t *bytes, size_t length, uint32_t flags,
                            uint32_t *verdict);
int32_t sluice_binlog_covers(const char *path, uint64_t pos);
int32_t sluice_binlog_lost(uint32_t reason);
/* is_due: the interval has passed. */
int32_t sluice_binlog_step(uint32_t is_due);
/* After start: KNOWN if the log knows what the server would scan the last file for; LEFT if the
   server has to, the error log says why; NOTHING if it need not; ASIDE if the server will not look at the
   files that the log knows. ddl_log: the server's log of DDL statements. */
int32_t sluice_binlog_scan_known(const char *ddl_log);
/* A prepared transaction with the server's XID: 1 commit, 0 roll back, -1 not known. */
int32_t sluice_binlog_decide(uint64_t xid, int32_t is_ours);
/* Nothing is in doubt any more: the GTID state is written where the server reads it, and the
   binary log file is marked as closed. */
int32_t sluice_binlog_close_completed(void);

/* Open tables */
int32_t sluice_open(const char *name, const sluice_table *table, sluice_handler **to);
int32_t sluice_close(sluice_handler *handler);
int32_t sluice_lock(sluice_handler *handler, uint32_t lock, uint32_t wait);
/* Only in builds for tests: is the mistake of this name (see planted.rs) on? */
uint32_t sluice_planted(const char *name);
int32_t sluice_set_replace(sluice_handler *handler, uint32_t on);
/* Until sluice_copy_end, rows that are inserted are those of a table that the server drops if the
   statement fails. loads: the statement stops at the first duplicate and reads nothing of the table,
   so its trees may be built at the end; else rows are committed piece by piece. keep: 0 if the statement
   has failed. */
int32_t sluice_copy_begin(sluice_handler *handler, sluice_session *session, uint32_t loads);
/* After HA_ERR_FOUND_DUPP_KEY of a row that came earlier: puts its key into the record. */
int32_t sluice_copy_duplicate(sluice_handler *handler, sluice_session *session, uint8_t *record);
int32_t sluice_copy_end(sluice_handler *handler, sluice_session *session, uint32_t keep);
/* Until sluice_bulk_end, rows that are inserted are those of a statement that stops at the first
   duplicate, reads nothing of the table and writes to no other one. If the table is empty and there are
   more bytes of rows they may go in at the end, which may find a duplicate. keep: 0 if a row has failed; the
   statement is taken back then. */
int32_t sluice_bulk_begin(sluice_handler *handler, sluice_session *session, uint64_t bytes);
int32_t sluice_bulk_end(sluice_handler *handler, sluice_session *session, uint32_t keep);
/* The statement is over: back to plain reads of whole rows. */
int32_t sluice_reset(sluice_handler *handler);
/* Index entries alone are enough. 2: what they do not have stays in the record as it is. */
int32_t sluice_set_keyread(sluice_handler *handler, uint32_t on);
/* The columns that the statement reads, a bit each. all: rows that are read are whole. */
int32_t sluice_set_columns(sluice_handler *handler, const uint8_t *bits, size_t bytes,
                           uint32_t all);
int32_t sluice_insert(sluice_handler *handler, sluice_session *session, const uint8_t *record);
int32_t sluice_update(sluice_handler *handler, sluice_session *session, const uint8_t *before,
                      const uint8_t *after);
int32_t sluice_delete(sluice_handler *handler, sluice_session *session, const uint8_t *record);
uint32_t sluice_duplicate_key(const sluice_handler *handler, sluice_session *session);
int32_t sluice_range_end(sluice_handler *handler, uint32_t key, const sluice_bound *end);
int32_t sluice_seek(sluice_handler *handler, sluice_session *session, uint32_t key,
                    const sluice_bound *at, uint32_t find, uint8_t *record);
int32_t sluice_first(sluice_handler *handler, sluice_session *session, uint32_t key,
                     uint32_t backward, uint8_t *record);
int32_t sluice_step(sluice_handler *handler, sluice_session *session, uint32_t backward,
                    uint8_t *record);
int32_t sluice_step_same(sluice_handler *handler, sluice_session *session, uint8_t *record);
int32_t sluice_scan_end(sluice_handler *handler);
int32_t sluice_fetch(sluice_handler *handler, sluice_session *session, const uint8_t *ref,
                     size_t ref_bytes, uint8_t *record);
int32_t sluice_hidden_ref(const sluice_handler *handler, uint8_t *to);
int32_t sluice_compare_refs(sluice_handler *handler, const uint8_t *left,
                            const uint8_t *right, size_t ref_bytes);
int32_t sluice_unlock_row(sluice_handler *handler, sluice_session *session);
/* Scans of rows show one that another transaction holds as it was committed last. 1 of the second:
   the last row is such a one, not locked; the next step locks it, unless sluice_unlock_row passed
   it by. */
int32_t sluice_try_semi_consistent(sluice_handler *handler, uint32_t on);
int32_t sluice_was_semi_consistent(const sluice_handler *handler);
/* quick: pages and trees only, without comparing indexes with rows. context: the THD, which is
   asked whether it was killed */
int32_t sluice_check_table(sluice_handler *handler, uint32_t quick, sluice_print print,
                           void *context);
/* Was an index built with other weights of a collation than the server has now? */
int32_t sluice_is_stale(const sluice_handler *handler);
int32_t sluice_info_of(const sluice_handler *handler, sluice_info *to);
int32_t sluice_key_statistics_of(const sluice_handler *handler, uint32_t key,
                                 sluice_key_statistics *to);
/* sample_pages: leaves read for each part of a key; 0: as sluice_set_statistics said */
int32_t sluice_analyze_table(sluice_handler *handler, uint64_t session, uint64_t sample_pages);
int32_t sluice_rows_in_range(sluice_handler *handler, uint32_t key, const sluice_bound *low,
                             const sluice_bound *high, sluice_range *to);
/* first: where the server stands, then the first value. */
int32_t sluice_autoinc_get(sluice_handler *handler, sluice_session *session,
                           const sluice_autoinc *wanted, uint64_t *first, uint64_t *count);
int32_t sluice_autoinc_wrote(sluice_handler *handler, sluice_session *session, uint64_t value,
                             uint64_t max, uint32_t how);
/* A statement inside another one begins. */
int32_t sluice_autoinc_statement(sluice_session *session);
/* A bulk insert begins or ends; increment 0: the series stays. */
int32_t sluice_autoinc_bulk(sluice_handler *handler, uint32_t on, uint64_t offset,
                            uint64_t increment);

/* ALTER TABLE of secondary indexes in place; writers are kept from the table. table: as it will be.
   kept: for each of its keys its number now, or SLUICE_NO_KEY for a new one. Every row is given once,
   then the indexes are built. */
int32_t sluice_alter_begin(const sluice_handler *handler, uint64_t thd, const sluice_table *table,
                           const uint32_t *kept, sluice_alter **to);
int32_t sluice_alter_row(sluice_alter *alter, const sluice_handler *handler,
                         const uint8_t *record);
/* HA_ERR_FOUND_DUPP_KEY: key and record are those of the later one of two rows. */
int32_t sluice_alter_build(sluice_alter *alter, uint64_t thd, sluice_handler *handler,
                           sluice_session *session, uint32_t *key, uint8_t *record);
/* Nobody uses the table. The alter is over, whatever the answer. */
int32_t sluice_alter_commit(sluice_alter *alter, uint64_t thd);
int32_t sluice_alter_abandon(sluice_alter *alter);
/* Grows with each TRUNCATE and ALTER in place; 0: there is no such table. */
uint64_t sluice_table_version(const char *name);

#ifdef __cplusplus
}
#endif
#endif
