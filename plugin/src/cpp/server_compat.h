/*
  What differs between the server releases that the plugin is compiled for. Nothing else tests the
  version of the server (plugin/tests/servers.rs looks after that).
*/
#ifndef SLUICE_SERVER_COMPAT_H
#define SLUICE_SERVER_COMPAT_H
#include "handler.h"
#include "table.h"
#include <vector>

/*
  Wrong layouts compile silently: each known release is listed with its sizes, as its headers have
  them. build.rs and scripts/fetch-mariadb read this table, too. server_release.cc compares it with
  the headers, scripts/install-plugin with the server itself.
*/
struct Sluice_layout
{
  unsigned version;
  size_t handlerton, handler, thd, binlog, io_cache;
};

constexpr Sluice_layout sluice_layouts[]= {
    /* Adding a release is one line here and one run of the tests: docs/install.md. */
    {101118, 456, 1328, 27312, 4440, 240},
    {101119, 456, 1328, 27376, 4440, 240},
    {110806, 440, 1416, 27552, 4504, 256},
};

/*
  A callback of transactions as a value of what the handlerton wants. Up to 11.7 these callbacks get
  the handlerton first, which ours do not need.
*/
template <auto call> struct Trx_callback;
template <typename Result, typename... Arguments, Result (*call)(Arguments...)>
struct Trx_callback<call>
{
  static Result with_hton(handlerton *, Arguments... arguments) { return call(arguments...); }
  using Plain= Result (*)(Arguments...);
  using With_hton= Result (*)(handlerton *, Arguments...);
  operator Plain() const { return call; }
  operator With_hton() const { return with_hton; }
};

/* Calls such a callback of any engine. */
template <typename Result, typename... Wanted, typename... Given>
Result sluice_call(handlerton *hton, Result (*callback)(handlerton *, Wanted...), Given... given)
{
  return callback(hton, given...);
}
template <typename Result, typename... Wanted, typename... Given>
Result sluice_call(handlerton *, Result (*callback)(Wanted...), Given... given)
{
  return callback(given...);
}

#if MYSQL_VERSION_ID >= 110800
inline bool sluice_is_fulltext(const KEY &key) { return key.algorithm == HA_KEY_ALG_FULLTEXT; }
inline bool sluice_is_spatial(const KEY &key) { return key.algorithm == HA_KEY_ALG_RTREE; }
/* They are not among TABLE_SHARE::keys. */
inline bool sluice_has_vector_key(const TABLE_SHARE *share)
{
  return share->total_keys > share->keys;
}
#else
inline bool sluice_is_fulltext(const KEY &key) { return key.flags & HA_FULLTEXT; }
inline bool sluice_is_spatial(const KEY &key)
{
  return key.flags & HA_SPATIAL || key.algorithm == HA_KEY_ALG_RTREE;
}
inline bool sluice_has_vector_key(const TABLE_SHARE *) { return false; }
#endif

/*
  11.8 commits a transaction above this size by renaming the file of its events to the next binlog:
  past the hook of binlog.cc, which then would not see them. True if it had to be forbidden.
*/
#if MYSQL_VERSION_ID >= 110800
extern ulonglong opt_binlog_commit_by_rotate_threshold;
inline bool sluice_forbid_commit_by_rename()
{
  if (__atomic_load_n(&opt_binlog_commit_by_rotate_threshold, __ATOMIC_RELAXED) == ULONGLONG_MAX)
    return false;
  __atomic_store_n(&opt_binlog_commit_by_rotate_threshold, ULONGLONG_MAX, __ATOMIC_RELAXED);
  return true;
}
#else
inline bool sluice_forbid_commit_by_rename() { return false; }
#endif

/*
  Of the rows that a value has, engines tell the optimizer this part, as InnoDB does it: up to 10.11
  it overestimates what a look-up costs.
*/
constexpr uint64_t sluice_told_part= MYSQL_VERSION_ID >= 110800 ? 1 : 2;

/* What the server says of a table that an ALTER TABLE or CREATE TABLE ... SELECT fills. */
enum class Copy_step
{
  NONE,
  BEGIN,
  /* Rows that are duplicates are left out. */
  BEGIN_IGNORE,
  END,
  ABORT
};
#if MYSQL_VERSION_ID >= 110800
/* The copy of an online ALTER has to be of one snapshot, for others write meanwhile: one transaction. */
inline Copy_step sluice_copy_step(ha_extra_function) { return Copy_step::NONE; }
#else
inline Copy_step sluice_copy_step(ha_extra_function operation)
{
  switch (operation)
  {
  case HA_EXTRA_BEGIN_COPY:
    return Copy_step::BEGIN;
  case HA_EXTRA_BEGIN_ALTER_IGNORE_COPY:
    return Copy_step::BEGIN_IGNORE;
  case HA_EXTRA_END_COPY:
    return Copy_step::END;
  case HA_EXTRA_ABORT_COPY:
    return Copy_step::ABORT;
  default:
    return Copy_step::NONE;
  }
}
#endif

#if MYSQL_VERSION_ID >= 110800
/* In ms, of rows in memory. InnoDB's, so that plans are InnoDB's: docs/decisions/0050-optimizer-costs.md. */
inline void sluice_update_costs(OPTIMIZER_COSTS *costs)
{
  costs->row_next_find_cost= 0.00007013;
  costs->row_lookup_cost= 0.00076597;
  costs->key_next_find_cost= 0.00009900;
  costs->key_lookup_cost= 0.00079112;
}
inline void sluice_offer_costs(handlerton *hton)
{
  hton->update_optimizer_costs= sluice_update_costs;
}
#else
/* The costs of steps are the server's own. */
inline void sluice_offer_costs(handlerton *) {}
#endif

/* What reading costs, by sizes that the statistics know. */
class Sluice_costs : public handler
{
protected:
  Sluice_costs(handlerton *hton, TABLE_SHARE *share) : handler(hton, share) {}

  double m_clustered_pages= 1.0;
  /* Leaf pages per entry of each key; empty: not known. */
  std::vector<double> m_pages_per_entry;

#if MYSQL_VERSION_ID >= 110800
  /* As the server's own, with the leaf pages that there are instead of a guess by the key's length. */
  IO_AND_CPU_COST keyread_time(uint key, ulong ranges, ha_rows rows, ulonglong blocks) override
  {
    if (!blocks && rows > 1 && key < m_pages_per_entry.size())
      blocks= ulonglong(ceil(double(rows) * m_pages_per_entry[key])) + ranges - 1;
    return handler::keyread_time(key, ranges, rows, blocks);
  }
#else
public:
  double scan_time() override { return m_clustered_pages; }
  /* Rows of the primary key lie beside each other: a seek for each range, and their share of a scan. */
  double read_time(uint key, uint ranges, ha_rows rows) override
  {
    if (key != table_share->primary_key)
      return handler::read_time(key, ranges, rows);
    if (rows >= stats.records)
      return scan_time();
    return ranges + double(rows) / double(stats.records) * scan_time();
  }
  /* As the server's own, with the leaf pages that there are instead of a guess by the key's length. */
  double keyread_time(uint key, uint ranges, ha_rows rows) override
  {
    if (key >= m_pages_per_entry.size())
      return handler::keyread_time(key, ranges, rows);
    const double pages= double(rows) * m_pages_per_entry[key];
    return pages / TIME_FOR_COMPARE + (ranges ? ceil(pages) : 0.0);
  }
#endif
};

#endif
