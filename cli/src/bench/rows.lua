-- Rows of a chosen size under one kind of statement, for sysbench: --work=insert, update_non_index,
-- update_index, point_select or read_only; --row_bytes=N counts id (4), k (4), pad (60) and c (the
-- rest), without the engine's own overhead. With 188 bytes the table is the one of the stock scripts,
-- and the reads are theirs. --keys=zipfian replaces the distribution that --rand-type names.

if sysbench.cmdline.command == nil then
  error("a command is needed: prepare, run or cleanup")
end

sysbench.cmdline.options = {
  tables = {"Number of tables", 1},
  table_size = {"Rows per table", 10000},
  row_bytes = {"Bytes of a row", 188},
  work = {"insert, update_non_index, update_index, point_select or read_only", "update_non_index"},
  keys = {"zipfian, or that of --rand-type", ""},
  mysql_storage_engine = {"Storage engine", "innodb"},
}

local FIXED_BYTES = 4 + 4 + 60
local RANGE_ROWS = 100
local POINTS = 10

-- Digits in groups of eleven, as they compress in the stock scripts.
local function template(bytes)
  local group = string.rep("#", 11) .. "-"
  return string.sub(string.rep(group, math.ceil(bytes / 12)), 1, bytes)
end

local function c_bytes()
  return math.max(1, sysbench.opt.row_bytes - FIXED_BYTES)
end

-- Ranks 1 to n, rank k with a probability of k^-s: rejection-inversion (W. Hoermann, G. Derflinger,
-- ACM TOMACS 6(3), 1996). s is that of YCSB. The hot ranks are scattered over the table.
local EXPONENT = 0.99
local SCATTER = 15485863

local function zipfian(n)
  local rest = 1 - EXPONENT
  local function area(x) return (x ^ rest - 1) / rest end
  local function area_inverse(y) return (1 + y * rest) ^ (1 / rest) end
  local function height(x) return x ^ -EXPONENT end
  local from, to = area(1.5) - 1, area(n + 0.5)
  local certain = 2 - area_inverse(area(2.5) - height(2))
  return function()
    while true do
      local y = to + sysbench.rand.uniform_double() * (from - to)
      local x = area_inverse(y)
      local rank = math.min(n, math.max(1, math.floor(x + 0.5)))
      if rank - x <= certain or y >= area(rank + 0.5) - height(rank) then
        return rank * SCATTER % n + 1
      end
    end
  end
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

local con, any_key, c_template, pad_template
-- By table, then by name.
local statements

local RANGE = " FROM sbtest%d WHERE id BETWEEN ? AND ?"

local SQL = {
  insert = {"INSERT INTO sbtest%d (k, c, pad) VALUES (?, ?, ?)"},
  update_non_index = {"UPDATE sbtest%d SET c = ? WHERE id = ?"},
  update_index = {"UPDATE sbtest%d SET k = k + 1 WHERE id = ?"},
  point_select = {"SELECT c FROM sbtest%d WHERE id = ?"},
  -- Points, then each range once.
  read_only = {"SELECT c FROM sbtest%d WHERE id = ?", "SELECT c" .. RANGE, "SELECT SUM(k)" .. RANGE,
    "SELECT c" .. RANGE .. " ORDER BY c", "SELECT DISTINCT c" .. RANGE .. " ORDER BY c"},
}

-- The parameters of a statement.
local function bind(statement, text)
  local types = sysbench.sql.type
  if sysbench.opt.work == "insert" then
    return {statement:bind_create(types.INT), statement:bind_create(types.CHAR, c_bytes()),
            statement:bind_create(types.CHAR, 60)}
  elseif sysbench.opt.work == "update_non_index" then
    return {statement:bind_create(types.CHAR, c_bytes()), statement:bind_create(types.INT)}
  elseif text:find("BETWEEN", 1, true) then
    return {statement:bind_create(types.INT), statement:bind_create(types.INT)}
  end
  return {statement:bind_create(types.INT)}
end

local function prepared(number, text)
  local statement = con:prepare(string.format(text, number))
  local values = bind(statement, text)
  statement:bind_param(unpack(values))
  return {statement = statement, values = values}
end

function thread_init()
  if SQL[sysbench.opt.work] == nil then error("no --work=" .. sysbench.opt.work) end
  con = sysbench.sql.driver():connect()
  c_template, pad_template = template(c_bytes()), template(60)
  any_key = function() return sysbench.rand.default(1, sysbench.opt.table_size) end
  if sysbench.opt.keys == "zipfian" then any_key = zipfian(sysbench.opt.table_size) end
  statements = {}
  for number = 1, sysbench.opt.tables do
    statements[number] = {}
    for at, text in ipairs(SQL[sysbench.opt.work]) do statements[number][at] = prepared(number, text) end
  end
end

function thread_done()
  for _, of_table in ipairs(statements) do
    for _, entry in ipairs(of_table) do entry.statement:close() end
  end
  con:disconnect()
end

local function read_only(of_table)
  con:query("BEGIN")
  for _ = 1, POINTS do
    of_table[1].values[1]:set(any_key())
    of_table[1].statement:execute()
  end
  for at = 2, #of_table do
    local first = any_key()
    of_table[at].values[1]:set(first)
    of_table[at].values[2]:set(first + RANGE_ROWS - 1)
    of_table[at].statement:execute()
  end
  con:query("COMMIT")
end

function event()
  local of_table = statements[sysbench.rand.uniform(1, sysbench.opt.tables)]
  local entry = of_table[1]
  local values = entry.values
  if sysbench.opt.work == "read_only" then return read_only(of_table) end
  if sysbench.opt.work == "insert" then
    values[1]:set(any_key())
    values[2]:set_rand_str(c_template)
    values[3]:set_rand_str(pad_template)
  elseif sysbench.opt.work == "update_non_index" then
    values[1]:set_rand_str(c_template)
    values[2]:set(any_key())
  else
    values[1]:set(any_key())
  end
  entry.statement:execute()
end

function cleanup()
  local connection = sysbench.sql.driver():connect()
  for number = 1, sysbench.opt.tables do
    connection:query("DROP TABLE IF EXISTS sbtest" .. number)
  end
end
