/*
  The handler of Sluice. Thin: it turns what the server hands over into calls of sluice_abi.h.
*/
#ifndef HA_SLUICE_H
#define HA_SLUICE_H

#define MYSQL_SERVER 1
#include <my_global.h>
#include "sql_class.h"
#include "sql_plugin.h"
#include "sql_priv.h"
#include "handler.h"
#include "table.h"
#include "field.h"
#include "key.h"
#include "log.h"
#include "sql_show.h"
#include <mysql/service_wsrep.h>
#include "create_options.h"
#include "server_compat.h"
#include "sluice_abi.h"
#include <map>
#include <string>
#include <vector>

extern handlerton *sluice_hton;

/* A TABLE in the terms of sluice_abi.h. */
class Sluice_description
{
public:
  explicit Sluice_description(const TABLE *table);
  const sluice_table *get() const { return &m_table; }

private:
  void add_column(const TABLE *table, Field *field);
  void add_key(const TABLE *table, const KEY *key);

  std::vector<sluice_column> m_columns;
  std::vector<std::vector<sluice_key_part>> m_parts;
  std::vector<sluice_key> m_keys;
  sluice_table m_table;
};

/* Why a table cannot be in Sluice; false and no error if it can. */
bool sluice_refuse(const TABLE *table, const HA_CREATE_INFO *info);

/* "./db/table" to "db/table"; of a temporary table the last component alone. */
const char *sluice_name(const char *path);

/*
  Collations, in collation.cc. The order of two strings is that of their weight strings, level by
  level where there are levels, see sluice_column::levels.
*/
uint32_t sluice_levels(CHARSET_INFO *cs);
/* tis620_thai_ci or its NO PAD form: tone marks weigh at the end, behind all spaces. */
bool sluice_is_thai(CHARSET_INFO *cs);
uint32_t sluice_order_of(CHARSET_INFO *cs);
size_t sluice_weights(CHARSET_INFO *cs, uint32_t levels, uint8_t *to, size_t room,
                      const uint8_t *from, size_t length);
/* A checksum of the weights of a sample: another one means that keys have to be built anew. */
uint64_t sluice_fingerprint(CHARSET_INFO *cs);

/* What CREATE TABLE takes beyond the server's own options. */
struct ha_table_option_struct
{
  const char *compression;
  uint encrypted; /* SLUICE_ENCRYPTED_* */
};
/* In the order of the values of ENCRYPTED. */
enum
{
  SLUICE_ENCRYPTED_DEFAULT,
  SLUICE_ENCRYPTED_YES,
  SLUICE_ENCRYPTED_NO
};
/* sluice_encrypt, as in sluice_config. */
uint32_t sluice_encrypts();
extern ha_create_table_option sluice_table_options[];
/* As sluice_config has it; false if the text names none. */
bool sluice_compression(const char *text, uint32_t *to);

/* The session of a THD, made when it is first needed; null after an error. */
sluice_session *sluice_session_of(THD *thd);
sluice_session *sluice_session_if_any(THD *thd);
void sluice_register(THD *thd);
uint64_t sluice_timeout_ms(THD *thd);
uint64_t sluice_bulk_insert_bytes(THD *thd);
/* Statements that put a copy in the place of a table; what is not committed would not be in it. */
inline bool copies_tables(int command)
{
  return command == SQLCOM_ALTER_TABLE || command == SQLCOM_CREATE_INDEX ||
         command == SQLCOM_DROP_INDEX || command == SQLCOM_OPTIMIZE || command == SQLCOM_REPAIR;
}

/* For DDL, before it changes anything. */
int sluice_wait_for_prepared(THD *thd, const char *name);
/* 0: the table is a newer one than that of the version, so an ALTER in place happened. */
int sluice_check_version(handlerton *hton, const char *path, const LEX_CUSTRING *definition,
                         ulonglong before);
/* Puts the text of the last error into the warnings. */
int sluice_report(THD *thd, int error);

class ha_sluice final : public Sluice_costs
{
public:
  ha_sluice(handlerton *hton, TABLE_SHARE *share);
  ~ha_sluice() override;

  Table_flags table_flags() const override;
  ulong index_flags(uint key, uint part, bool all_parts) const override;
  const char *index_type(uint) override { return "BTREE"; }
  uint max_supported_keys() const override { return MAX_KEY; }
  uint max_supported_key_length() const override { return 3072; }
  uint max_supported_key_part_length() const override { return 3072; }
  uint max_supported_record_length() const override { return HA_MAX_REC_LENGTH; }
  /* The query cache knows neither snapshots nor commits of an engine: it would give old rows. */
  uint8 table_cache_type() override
  {
    return sluice_planted("A5") ? HA_CACHE_TBL_NONTRANSACT : HA_CACHE_TBL_NOCACHE;
  }
  uint lock_count() const override { return 0; }
  const key_map *keys_to_use_for_scanning() override { return &key_map_full; }

  handler *clone(const char *name, MEM_ROOT *root) override;
  int open(const char *name, int mode, uint test_if_locked) override;
  int close() override;
  int create(const char *name, TABLE *form, HA_CREATE_INFO *info) override;
  int delete_table(const char *name) override;
  int rename_table(const char *from, const char *to) override;
  int truncate() override;
  int check(THD *thd, HA_CHECK_OPT *options) override;
  int check_for_upgrade(HA_CHECK_OPT *options) override;
  int analyze(THD *thd, HA_CHECK_OPT *options) override;
  int optimize(THD *thd, HA_CHECK_OPT *options) override;
  void update_create_info(HA_CREATE_INFO *info) override;
  bool check_if_incompatible_data(HA_CREATE_INFO *info, uint changes) override;
  enum_alter_inplace_result check_if_supported_inplace_alter(TABLE *altered,
                                                             Alter_inplace_info *info) override;
  bool prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
  bool inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
  bool commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit) override;
  ulonglong table_version() const override;

  int external_lock(THD *thd, int type) override;
  int start_stmt(THD *thd, thr_lock_type type) override;
  bool autoinc_lock_mode_stmt_unsafe() const override;
  THR_LOCK_DATA **store_lock(THD *thd, THR_LOCK_DATA **to, thr_lock_type type) override;
  void unlock_row() override;
  void try_semi_consistent_read(bool yes) override;
  bool was_semi_consistent_read() override;
  int extra(ha_extra_function operation) override;
  int reset() override;
  int info(uint flag) override;

  int write_row(const uchar *record) override;
  int update_row(const uchar *before, const uchar *after) override;
  int delete_row(const uchar *record) override;
  void start_bulk_insert(ha_rows rows, uint flags) override;
  int end_bulk_insert() override;
  void get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted,
                          ulonglong *first, ulonglong *reserved) override;

  int index_init(uint key, bool sorted) override;
  int index_end() override;
  int index_read_map(uchar *record, const uchar *key, key_part_map parts,
                     ha_rkey_function find) override;
  int index_read_last_map(uchar *record, const uchar *key, key_part_map parts) override;
  int index_next(uchar *record) override;
  int index_prev(uchar *record) override;
  int index_first(uchar *record) override;
  int index_last(uchar *record) override;
  int index_next_same(uchar *record, const uchar *key, uint key_bytes) override;
  int read_range_first(const key_range *start, const key_range *end, bool eq_range,
                       bool sorted) override;
  int multi_range_read_next(range_id_t *range) override;
  void print_error(int error, myf flags) override;
  int rnd_init(bool scan) override;
  int rnd_end() override;
  int rnd_next(uchar *record) override;
  int rnd_pos(uchar *record, uchar *position) override;
  void position(const uchar *record) override;
  void column_bitmaps_signal() override;
  int cmp_ref(const uchar *left, const uchar *right) override;
  ha_rows records_in_range(uint key, const key_range *low, const key_range *high,
                           page_range *pages) override;

private:
  bool is_hidden() const { return table_share->primary_key == MAX_KEY; }
  int begin(THD *thd);
  int done(int error) { return error ? failed(error) : 0; }
  int came(int error, uchar *record);
  void compute_virtual(uchar *record);
  void keep_blob(uint part, Field *field);
  void compute_indexed_virtual();
  int failed(int error);
  bool refuse_galera(THD *thd) const;
  int copy_begin(bool ignores);
  int copied(int error);
  bool may_load() const;
  int alter_rows(sluice_alter *alter);
  bool alter_failed(int error);
  sluice_bound bound_of(uint key, const uchar *image, key_part_map parts, bool inclusive) const;
  void note_autoinc(uint32_t how);
  void describe_selectivity(ha_rows rows, uint64_t version);
  void choose_columns();

  /* In the engine; of a partition its own, not the table's. */
  std::string m_name;
  sluice_handler *m_handler= nullptr;
  sluice_session *m_session= nullptr;
  /* What store_lock chose for reads, and what holds for this statement. */
  uint32_t m_stored_lock= SLUICE_LOCK_NONE;
  uint32_t m_lock= SLUICE_LOCK_NONE;
  bool m_skip_locked= false;
  /* Between external_lock and its F_UNLCK. */
  bool m_server_locked= false;
  bool m_replace= false;
  /* The statement goes on after a duplicate. */
  bool m_ignores= false;
  /* Between start_bulk_insert and end_bulk_insert: rows may be loaded. */
  bool m_bulk= false;
  bool m_scan_started= false;
  bool m_keyread= false;
  /* Virtual columns of the scanned index are computed here. */
  bool m_computes_virtual= false;
  /* By key part: what a record that is not the server's own points to. */
  std::map<uint, std::string> m_virtual_blobs;
  /* What the statistics said when the share was last told. */
  uint64_t m_statistics_version= 0;
};

#endif
