/*
  INFORMATION_SCHEMA.SLUICE_TABLE_WRITES: bytes written for each table, by cause.
*/
#include "ha_sluice.h"
#include "hton.h"
#include "sql_acl.h"
#include "sql_table.h"
#include "sql_i_s.h"
#include <mysql/plugin.h>

/* In the order of the columns. */
static uint64_t sluice_writes::*const causes[]= {
    &sluice_writes::log, &sluice_writes::build, &sluice_writes::eviction,
    &sluice_writes::checkpoint, &sluice_writes::gc, &sluice_writes::other,
    &sluice_writes::total,
};

/* The parts of a table's path. */
struct Table_parts
{
  std::string schema, table, partition, subpartition;
};

/* Takes what stands after the mark, in the letters of the system, off the text. */
static std::string cut_after(std::string *text, const char *mark, const char *small_mark)
{
  size_t at= text->find(mark);
  if (at == std::string::npos)
    at= text->find(small_mark);
  if (at == std::string::npos)
    return std::string();
  std::string rest= text->substr(at + strlen(mark));
  text->erase(at);
  return rest;
}

static Table_parts parts_of(const std::string &path)
{
  Table_parts parts;
  const size_t slash= path.find('/');
  parts.table= slash == std::string::npos ? path : path.substr(slash + 1);
  if (slash == std::string::npos)
    return parts;
  parts.schema= path.substr(0, slash);
  parts.partition= cut_after(&parts.table, "#P#", "#p#");
  parts.subpartition= cut_after(&parts.partition, "#SP#", "#sp#");
  return parts;
}

/* A name that stands in a path; an empty one is NULL. */
static bool store_name(Field *field, const std::string &encoded)
{
  char name[FN_REFLEN];
  if (encoded.empty())
  {
    field->set_null();
    return false;
  }
  field->set_notnull();
  const uint length= filename_to_tablename(encoded.c_str(), name, sizeof name, true);
  return field->store(name, length, system_charset_info);
}

struct Fill
{
  THD *thd;
  TABLE *table;
  bool failed;
};

static int32_t put_row(void *context, const char *name, size_t length, const sluice_writes *bytes)
{
  Fill *fill= static_cast<Fill *>(context);
  Field **field= fill->table->field;
  const Table_parts parts= parts_of(std::string(name, length));
  store_name(*field++, parts.schema);
  if (parts.schema.empty())
    (*field++)->store(name, length, system_charset_info);
  else
    store_name(*field++, parts.table);
  store_name(*field++, parts.partition);
  store_name(*field++, parts.subpartition);
  for (const auto cause : causes)
    (*field++)->store(longlong(bytes->*cause), true);
  fill->failed= schema_table_store_record(fill->thd, fill->table);
  return fill->failed;
}

/* The privilege is that of the tables of InnoDB. */
static int fill_table(THD *thd, TABLE_LIST *tables, COND *)
{
  if (check_global_access(thd, PROCESS_ACL))
    return 1;
  Fill fill= {thd, tables->table, false};
  if (sluice_table_writes(put_row, &fill))
  {
    char text[1024];
    sluice_message(text, sizeof text);
    my_printf_error(ER_UNKNOWN_ERROR, "Sluice: %s", MYF(0), text);
    return 1;
  }
  return fill.failed;
}

extern "C" {
int sluice_plugin_table_writes_start(void *schema_table)
{
  if (!sluice_fits_server())
    return 1;
  static ST_FIELD_INFO columns[]= {
      Show::Column("TABLE_SCHEMA", Show::Varchar(NAME_CHAR_LEN), NULLABLE),
      Show::Column("TABLE_NAME", Show::Varchar(NAME_CHAR_LEN), NOT_NULL),
      Show::Column("PARTITION_NAME", Show::Varchar(NAME_CHAR_LEN), NULLABLE),
      Show::Column("SUBPARTITION_NAME", Show::Varchar(NAME_CHAR_LEN), NULLABLE),
      Show::Column("LOG_BYTES", Show::ULonglong(), NOT_NULL),
      Show::Column("BUILD_BYTES", Show::ULonglong(), NOT_NULL),
      Show::Column("EVICTION_BYTES", Show::ULonglong(), NOT_NULL),
      Show::Column("CHECKPOINT_BYTES", Show::ULonglong(), NOT_NULL),
      Show::Column("GC_BYTES", Show::ULonglong(), NOT_NULL),
      Show::Column("OTHER_BYTES", Show::ULonglong(), NOT_NULL),
      Show::Column("TOTAL_BYTES", Show::ULonglong(), NOT_NULL),
      Show::CEnd(),
  };
  ST_SCHEMA_TABLE *schema= static_cast<ST_SCHEMA_TABLE *>(schema_table);
  schema->fields_info= columns;
  schema->fill_table= fill_table;
  return 0;
}

/* What src/declare.rs puts into the declaration. */
static_assert(MYSQL_INFORMATION_SCHEMA_PLUGIN == 4, "as in declare.rs");

st_mysql_information_schema sluice_plugin_table_writes= {MYSQL_INFORMATION_SCHEMA_INTERFACE_VERSION};
}
