-- Rows of a chosen size under one kind of change, for sysbench: --change=insert, update_non_index
-- or update_index; --row_bytes=N counts id (4), k (4), pad (60) and c (the rest), without the
-- engine's own overhead. With 188 bytes the table is the one of the stock scripts.

if sysbench.cmdline.command == nil then
  error("a command is needed: prepare, run or cleanup")
end

sysbench.cmdline.options = {
  tables = {"Number of tables", 1},
  table_size = {"Rows per table", 10000},
  row_bytes = {"Bytes of a row", 188},
  change = {"insert, update_non_index or update_index", "update_non_index"},
  mysql_storage_engine = {"Storage engine", "innodb"},
}

local FIXED_BYTES = 4 + 4 + 60

-- Digits in groups of eleven, as they compress in the stock scripts.
local function template(bytes)
  local group = string.rep("#", 11) .. "-"
  return string.sub(string.rep(group, math.ceil(bytes / 12)), 1, bytes)
end

local function c_bytes()
  return math.max(1, sysbench.opt.row_bytes - FIXED_BYTES)
end

local function fill_table(con, number)
  local name = "sbtest" .. number
  con:query(string.format(
    "CREATE TABLE %s (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, k INT NOT NULL DEFAULT 0, " ..
    "c VARCHAR(%d) NOT NULL DEFAULT '', pad CHAR(60) NOT NULL DEFAULT '') ENGINE=%s",
    name, c_bytes(), sysbench.opt.mysql_storage_engine))
  con:bulk_insert_init("INSERT INTO " .. name .. " (k, c, pad) VALUES")
  local c, pad = template(c_bytes()), template(60)
  for _ = 1, sysbench.opt.table_size do
    con:bulk_insert_next(string.format("(%d, '%s', '%s')",
      sysbench.rand.uniform(1, sysbench.opt.table_size), sysbench.rand.string(c),
      sysbench.rand.string(pad)))
  end
  con:bulk_insert_done()
  con:query(string.format("CREATE INDEX k_%d ON %s (k)", number, name))
end

local function prepare()
  local con = sysbench.sql.driver():connect()
  for number = sysbench.tid % sysbench.opt.threads + 1, sysbench.opt.tables, sysbench.opt.threads do
    fill_table(con, number)
  end
end

sysbench.cmdline.commands = {prepare = {prepare, sysbench.cmdline.PARALLEL_COMMAND}}

local con, statements, c_template, pad_template

local SQL = {
  insert = "INSERT INTO sbtest%d (k, c, pad) VALUES (?, ?, ?)",
  update_non_index = "UPDATE sbtest%d SET c = ? WHERE id = ?",
  update_index = "UPDATE sbtest%d SET k = k + 1 WHERE id = ?",
}

local function bind(statement)
  local types = sysbench.sql.type
  if sysbench.opt.change == "insert" then
    return {statement:bind_create(types.INT), statement:bind_create(types.CHAR, c_bytes()),
            statement:bind_create(types.CHAR, 60)}
  elseif sysbench.opt.change == "update_non_index" then
    return {statement:bind_create(types.CHAR, c_bytes()), statement:bind_create(types.INT)}
  end
  return {statement:bind_create(types.INT)}
end

function thread_init()
  con = sysbench.sql.driver():connect()
  c_template, pad_template = template(c_bytes()), template(60)
  statements = {}
  for number = 1, sysbench.opt.tables do
    local statement = con:prepare(string.format(SQL[sysbench.opt.change], number))
    local values = bind(statement)
    statement:bind_param(unpack(values))
    statements[number] = {statement = statement, values = values}
  end
end

function thread_done()
  for _, entry in ipairs(statements) do entry.statement:close() end
  con:disconnect()
end

function event()
  local entry = statements[sysbench.rand.uniform(1, sysbench.opt.tables)]
  local values, key = entry.values, sysbench.rand.default(1, sysbench.opt.table_size)
  if sysbench.opt.change == "insert" then
    values[1]:set(key)
    values[2]:set_rand_str(c_template)
    values[3]:set_rand_str(pad_template)
  elseif sysbench.opt.change == "update_non_index" then
    values[1]:set_rand_str(c_template)
    values[2]:set(key)
  else
    values[1]:set(key)
  end
  entry.statement:execute()
end

function cleanup()
  local connection = sysbench.sql.driver():connect()
  for number = 1, sysbench.opt.tables do
    connection:query("DROP TABLE IF EXISTS sbtest" .. number)
  end
end
