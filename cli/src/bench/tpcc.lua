-- A workload like TPC-C for sysbench, written from the text of the specification (TPC Benchmark C,
-- revision 5.11, www.tpc.org): nine tables, five transactions in the mix 45/43/4/4/4, keys of NURand,
-- one New-Order in a hundred rolled back. What differs, so that its figures are none of TPC-C:
-- no terminals and no times to key and think; each transaction takes its warehouse at random; no
-- foreign keys; --scale_percent shrinks customers, orders, items and stock.
-- The loaded rows depend on --seed, --warehouses and --scale_percent alone.

if sysbench.cmdline.command == nil then
  error("a command is needed: prepare, run or cleanup")
end

sysbench.cmdline.options = {
  warehouses = {"Number of warehouses", 10},
  scale_percent = {"Part of the specification's rows below each warehouse", 100},
  seed = {"Of the loaded rows", 1},
  mysql_storage_engine = {"Storage engine", "innodb"},
}

local bit = require("bit")

local DISTRICTS = 10
local NAMES = 1000
-- The constants C of NURand. That of names differs between load and run by 65 to 119, but not by 96
-- or 112.
local NAME_C_LOAD, NAME_C_RUN, CUSTOMER_C, ITEM_C = 100, 200, 259, 7911
local LOADED_AT = "'2026-01-01 00:00:00'"

-- Rows below a warehouse, and the masks of NURand for them.
local function sizes()
  local part = sysbench.opt.scale_percent / 100
  local items = math.max(100, math.floor(100000 * part))
  local customers = math.max(30, math.floor(3000 * part))
  local function mask(rows, full_rows, full_mask)
    local wanted = (full_mask + 1) * rows / full_rows
    return 2 ^ math.max(1, math.floor(math.log(wanted) / math.log(2) + 1e-9)) - 1
  end
  return {
    items = items,
    customers = customers,
    names = math.min(NAMES, customers),
    -- Of the loaded orders, as many as customers, the last three tenths are not delivered.
    delivered = math.floor(customers * 0.7),
    item_mask = mask(items, 100000, 8191),
    customer_mask = mask(customers, 3000, 1023),
  }
end

local function nurand(between, mask, c, from, to)
  return (bit.bor(between(0, mask), between(from, to)) + c) % (to - from + 1) + from
end

local SYLLABLES = {"BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"}

local function last_name(number)
  local function syllable(power) return SYLLABLES[math.floor(number / power) % 10 + 1] end
  return syllable(100) .. syllable(10) .. syllable(1)
end

local function cents(amount)
  return string.format("%d.%02d", math.floor(amount / 100), amount % 100)
end

-- Random numbers of the load: the generator of Park and Miller, exact in doubles.

local PAIRS = {}
do
  local letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
  for first = 1, #letters do
    for second = 1, #letters do
      PAIRS[#PAIRS + 1] = letters:sub(first, first) .. letters:sub(second, second)
    end
  end
end

local Random = {}
Random.__index = Random

local MODULUS = 2147483647

-- A stream of its own for each warehouse, so that threads do not matter.
function Random.new(stream)
  local state = (sysbench.opt.seed * 1000003 + stream * 7368787 + 1) % (MODULUS - 1) + 1
  local random = setmetatable({state = state}, Random)
  for _ = 1, 10 do random:next() end
  random.between_of = function(from, to) return random:between(from, to) end
  return random
end

function Random:next()
  self.state = self.state * 48271 % MODULUS
  return self.state
end

function Random:between(from, to)
  return from + self:next() % (to - from + 1)
end

function Random:text(least, most)
  local length, parts = self:between(least, most), {}
  for _ = 1, math.ceil(length / 4) do
    local number = self:next()
    parts[#parts + 1] = PAIRS[number % #PAIRS + 1]
    parts[#parts + 1] = PAIRS[math.floor(number / #PAIRS) % #PAIRS + 1]
  end
  return table.concat(parts):sub(1, length)
end

function Random:digits(count)
  local text = ""
  while #text < count do text = text .. string.format("%06d", self:next() % 1000000) end
  return text:sub(1, count)
end

-- One in ten has the word ORIGINAL in it.
function Random:data()
  local text = self:text(26, 50)
  if self:between(1, 10) > 1 then return text end
  local at = self:between(0, #text - 8)
  return text:sub(1, at) .. "ORIGINAL" .. text:sub(at + 9)
end

function Random:address()
  return string.format("'%s','%s','%s','%s','%s'", self:text(10, 20), self:text(10, 20),
    self:text(10, 20), self:text(2, 2), self:digits(4) .. "11111")
end

function Random:permutation(count)
  local list = {}
  for at = 1, count do list[at] = at end
  for at = count, 2, -1 do
    local other = self:between(1, at)
    list[at], list[other] = list[other], list[at]
  end
  return list
end

-- Tables.

local ADDRESS = "%s_street_1 VARCHAR(20) NOT NULL, %s_street_2 VARCHAR(20) NOT NULL, " ..
  "%s_city VARCHAR(20) NOT NULL, %s_state CHAR(2) NOT NULL, %s_zip CHAR(9) NOT NULL"

local function address(prefix) return (ADDRESS:gsub("%%s", prefix)) end

local function dists()
  local columns = {}
  for district = 1, DISTRICTS do
    columns[district] = string.format("s_dist_%02d CHAR(24) NOT NULL", district)
  end
  return table.concat(columns, ", ")
end

local TABLES = {
  {"warehouse", "w_id SMALLINT NOT NULL PRIMARY KEY, w_name VARCHAR(10) NOT NULL, " .. address("w") ..
    ", w_tax DECIMAL(4,4) NOT NULL, w_ytd DECIMAL(12,2) NOT NULL"},
  {"district", "d_id TINYINT NOT NULL, d_w_id SMALLINT NOT NULL, d_name VARCHAR(10) NOT NULL, " ..
    address("d") .. ", d_tax DECIMAL(4,4) NOT NULL, d_ytd DECIMAL(12,2) NOT NULL, " ..
    "d_next_o_id INT NOT NULL, PRIMARY KEY (d_w_id, d_id)"},
  {"customer", "c_id INT NOT NULL, c_d_id TINYINT NOT NULL, c_w_id SMALLINT NOT NULL, " ..
    "c_first VARCHAR(16) NOT NULL, c_middle CHAR(2) NOT NULL, c_last VARCHAR(16) NOT NULL, " ..
    address("c") .. ", c_phone CHAR(16) NOT NULL, c_since DATETIME NOT NULL, " ..
    "c_credit CHAR(2) NOT NULL, c_credit_lim DECIMAL(12,2) NOT NULL, " ..
    "c_discount DECIMAL(4,4) NOT NULL, c_balance DECIMAL(12,2) NOT NULL, " ..
    "c_ytd_payment DECIMAL(12,2) NOT NULL, c_payment_cnt SMALLINT UNSIGNED NOT NULL, " ..
    "c_delivery_cnt SMALLINT UNSIGNED NOT NULL, c_data VARCHAR(500) NOT NULL, " ..
    "PRIMARY KEY (c_w_id, c_d_id, c_id), KEY customer_name (c_w_id, c_d_id, c_last, c_first)"},
  {"history", "h_c_id INT NOT NULL, h_c_d_id TINYINT NOT NULL, h_c_w_id SMALLINT NOT NULL, " ..
    "h_d_id TINYINT NOT NULL, h_w_id SMALLINT NOT NULL, h_date DATETIME NOT NULL, " ..
    "h_amount DECIMAL(6,2) NOT NULL, h_data VARCHAR(24) NOT NULL"},
  {"orders", "o_id INT NOT NULL, o_d_id TINYINT NOT NULL, o_w_id SMALLINT NOT NULL, " ..
    "o_c_id INT NOT NULL, o_entry_d DATETIME NOT NULL, o_carrier_id TINYINT, " ..
    "o_ol_cnt TINYINT NOT NULL, o_all_local TINYINT NOT NULL, " ..
    "PRIMARY KEY (o_w_id, o_d_id, o_id), KEY orders_customer (o_w_id, o_d_id, o_c_id, o_id)"},
  {"new_orders", "no_o_id INT NOT NULL, no_d_id TINYINT NOT NULL, no_w_id SMALLINT NOT NULL, " ..
    "PRIMARY KEY (no_w_id, no_d_id, no_o_id)"},
  {"order_line", "ol_o_id INT NOT NULL, ol_d_id TINYINT NOT NULL, ol_w_id SMALLINT NOT NULL, " ..
    "ol_number TINYINT NOT NULL, ol_i_id INT NOT NULL, ol_supply_w_id SMALLINT NOT NULL, " ..
    "ol_delivery_d DATETIME, ol_quantity TINYINT NOT NULL, ol_amount DECIMAL(6,2) NOT NULL, " ..
    "ol_dist_info CHAR(24) NOT NULL, PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)"},
  {"stock", "s_i_id INT NOT NULL, s_w_id SMALLINT NOT NULL, s_quantity SMALLINT NOT NULL, " .. dists() ..
    ", s_ytd INT NOT NULL, s_order_cnt SMALLINT UNSIGNED NOT NULL, " ..
    "s_remote_cnt SMALLINT UNSIGNED NOT NULL, s_data VARCHAR(50) NOT NULL, PRIMARY KEY (s_w_id, s_i_id)"},
  {"item", "i_id INT NOT NULL PRIMARY KEY, i_im_id INT NOT NULL, i_name VARCHAR(24) NOT NULL, " ..
    "i_price DECIMAL(5,2) NOT NULL, i_data VARCHAR(50) NOT NULL"},
}

-- Every thread comes here first, so a table may be there.
local function create_tables(con)
  for _, entry in ipairs(TABLES) do
    con:query(string.format("CREATE TABLE IF NOT EXISTS %s (%s) ENGINE=%s CHARACTER SET latin1",
      entry[1], entry[2], sysbench.opt.mysql_storage_engine))
  end
end

-- The load.

-- Inserts what `values` gives for 1 to `count`, in large statements.
local function fill(con, name, count, values)
  con:bulk_insert_init("INSERT INTO " .. name .. " VALUES")
  for number = 1, count do con:bulk_insert_next("(" .. values(number) .. ")") end
  con:bulk_insert_done()
end

local function load_items(con, size)
  local random = Random.new(0)
  fill(con, "item", size.items, function(id)
    return string.format("%d,%d,'%s',%s,'%s'", id, random:between(1, 10000), random:text(14, 24),
      cents(random:between(100, 10000)), random:data())
  end)
end

local function load_stock(con, size, random, warehouse)
  fill(con, "stock", size.items, function(item)
    local parts = {}
    for district = 1, DISTRICTS do parts[district] = random:text(24, 24) end
    return string.format("%d,%d,%d,'%s',0,0,0,'%s'", item, warehouse, random:between(10, 100),
      table.concat(parts, "','"), random:data())
  end)
end

local function load_customers(con, size, random, warehouse, district)
  fill(con, "customer", size.customers, function(id)
    local name = id - 1
    if id > NAMES then name = nurand(random.between_of, 255, NAME_C_LOAD, 0, NAMES - 1) end
    return string.format(
      "%d,%d,%d,'%s','OE','%s',%s,'%s',%s,'%s',50000.00,%.4f,-10.00,10.00,1,0,'%s'", id, district,
      warehouse, random:text(8, 16), last_name(name), random:address(), random:digits(16), LOADED_AT,
      random:between(1, 10) == 1 and "BC" or "GC", random:between(0, 5000) / 10000,
      random:text(300, 500))
  end)
  fill(con, "history", size.customers, function(id)
    return string.format("%d,%d,%d,%d,%d,%s,10.00,'%s'", id, district, warehouse, district, warehouse,
      LOADED_AT, random:text(12, 24))
  end)
end

local function load_orders(con, size, random, warehouse, district)
  local customer_of, lines_of = random:permutation(size.customers), {}
  fill(con, "orders", size.customers, function(id)
    lines_of[id] = random:between(5, 15)
    local carrier = id <= size.delivered and random:between(1, 10) or "NULL"
    return string.format("%d,%d,%d,%d,%s,%s,%d,1", id, district, warehouse, customer_of[id], LOADED_AT,
      carrier, lines_of[id])
  end)
  fill(con, "new_orders", size.customers - size.delivered, function(number)
    return string.format("%d,%d,%d", size.delivered + number, district, warehouse)
  end)
  local lines = {}
  for id = 1, size.customers do
    for number = 1, lines_of[id] do lines[#lines + 1] = {id, number} end
  end
  fill(con, "order_line", #lines, function(at)
    local id, number = lines[at][1], lines[at][2]
    local delivered = id <= size.delivered
    return string.format("%d,%d,%d,%d,%d,%d,%s,5,%s,'%s'", id, district, warehouse, number,
      random:between(1, size.items), warehouse, delivered and LOADED_AT or "NULL",
      delivered and "0.00" or cents(random:between(1, 999999)), random:text(24, 24))
  end)
end

-- Sums and counts agree with the payments and orders that are loaded below.
local function load_warehouse(con, size, warehouse)
  local random = Random.new(warehouse)
  local paid = size.customers * 1000
  fill(con, "warehouse", 1, function()
    return string.format("%d,'%s',%s,%.4f,%s", warehouse, random:text(6, 10), random:address(),
      random:between(0, 2000) / 10000, cents(paid * DISTRICTS))
  end)
  fill(con, "district", DISTRICTS, function(id)
    return string.format("%d,%d,'%s',%s,%.4f,%s,%d", id, warehouse, random:text(6, 10), random:address(),
      random:between(0, 2000) / 10000, cents(paid), size.customers + 1)
  end)
  load_stock(con, size, random, warehouse)
  for district = 1, DISTRICTS do
    load_customers(con, size, random, warehouse, district)
    load_orders(con, size, random, warehouse, district)
  end
end

local function prepare()
  local con, size = sysbench.sql.driver():connect(), sizes()
  create_tables(con)
  local thread = sysbench.tid % sysbench.opt.threads
  if thread == 0 then load_items(con, size) end
  for warehouse = thread + 1, sysbench.opt.warehouses, sysbench.opt.threads do
    load_warehouse(con, size, warehouse)
  end
end

sysbench.cmdline.commands = {prepare = {prepare, sysbench.cmdline.PARALLEL_COMMAND}}

-- The transactions. A session that meets a deadlock or a timeout rolls back and does the same
-- transaction again, with other keys.

local con, size, pending, done, rolled_back

local between = sysbench.rand.uniform

local function run(text, ...) return con:query(string.format(text, ...)) end

-- The first row, or nil.
local function row(text, ...)
  local result = run(text, ...)
  if result == nil or result.nrows == 0 then return nil end
  return result:fetch_row()
end

-- The one row that must be there.
local function one(text, ...)
  return row(text, ...) or error("no row: " .. string.format(text, ...))
end

local function any_warehouse() return between(1, sysbench.opt.warehouses) end

local function other_warehouse(home)
  if sysbench.opt.warehouses == 1 then return home end
  local other = between(1, sysbench.opt.warehouses - 1)
  return other < home and other or other + 1
end

local function any_customer() return nurand(between, size.customer_mask, CUSTOMER_C, 1, size.customers) end

-- Of those with one name, the middle one by first name.
local function customer_by_name(warehouse, district)
  local result = run("SELECT c_id FROM customer WHERE c_w_id = %d AND c_d_id = %d AND c_last = '%s' " ..
    "ORDER BY c_first", warehouse, district, last_name(nurand(between, 255, NAME_C_RUN, 0, size.names - 1)))
  local wanted = math.ceil(tonumber(result.nrows) / 2)
  for _ = 2, wanted do result:fetch_row() end
  return tonumber(result:fetch_row()[1])
end

local function customer_by_name_or_id(warehouse, district)
  if between(1, 100) <= 60 then return customer_by_name(warehouse, district) end
  return any_customer()
end

-- The items of an order, and whether all come from its own warehouse.
local function wanted_items(warehouse)
  local lines, all_local = {}, 1
  for number = 1, between(5, 15) do
    local supplier = warehouse
    if between(1, 100) == 1 then supplier = other_warehouse(warehouse) end
    if supplier ~= warehouse then all_local = 0 end
    lines[number] = {
      item = nurand(between, size.item_mask, ITEM_C, 1, size.items),
      supplier = supplier,
      quantity = between(1, 10),
    }
  end
  -- One order in a hundred names an item that does not exist, and is rolled back.
  if between(1, 100) == 1 then lines[#lines].item = size.items + 1 end
  return lines, all_local
end

-- Takes one line's goods from the stock; the answer is the district's text for the line.
local function take_from_stock(line, district, warehouse)
  local key = string.format("s_w_id = %d AND s_i_id = %d", line.supplier, line.item)
  local stock = one("SELECT s_quantity, s_dist_%02d, s_data FROM stock WHERE %s FOR UPDATE", district, key)
  local left = tonumber(stock[1]) - line.quantity
  if left < 10 then left = left + 91 end
  run("UPDATE stock SET s_quantity = %d, s_ytd = s_ytd + %d, s_order_cnt = s_order_cnt + 1, " ..
    "s_remote_cnt = s_remote_cnt + %d WHERE %s", left, line.quantity,
    line.supplier == warehouse and 0 or 1, key)
  return stock[2]
end

local function new_order()
  local warehouse, district, customer = any_warehouse(), between(1, DISTRICTS), any_customer()
  local lines, all_local = wanted_items(warehouse)
  con:query("BEGIN")
  one("SELECT w_tax FROM warehouse WHERE w_id = %d", warehouse)
  local next = one("SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = %d AND d_id = %d FOR UPDATE",
    warehouse, district)
  local order = tonumber(next[1])
  run("UPDATE district SET d_next_o_id = %d WHERE d_w_id = %d AND d_id = %d", order + 1, warehouse, district)
  one("SELECT c_discount, c_last, c_credit FROM customer WHERE c_w_id = %d AND c_d_id = %d AND c_id = %d",
    warehouse, district, customer)
  run("INSERT INTO orders VALUES (%d, %d, %d, %d, NOW(), NULL, %d, %d)", order, district, warehouse,
    customer, #lines, all_local)
  run("INSERT INTO new_orders VALUES (%d, %d, %d)", order, district, warehouse)
  for number, line in ipairs(lines) do
    local item = row("SELECT i_price, i_name, i_data FROM item WHERE i_id = %d", line.item)
    if item == nil then
      con:query("ROLLBACK")
      rolled_back = rolled_back + 1
      return
    end
    local text = take_from_stock(line, district, warehouse)
    run("INSERT INTO order_line VALUES (%d, %d, %d, %d, %d, %d, NULL, %d, %.2f, '%s')", order, district,
      warehouse, number, line.item, line.supplier, line.quantity, line.quantity * tonumber(item[1]), text)
  end
  con:query("COMMIT")
end

local function payment()
  local warehouse, district = any_warehouse(), between(1, DISTRICTS)
  local amount = cents(between(100, 500000))
  local customer_warehouse, customer_district = warehouse, district
  if between(1, 100) > 85 then
    customer_warehouse, customer_district = other_warehouse(warehouse), between(1, DISTRICTS)
  end
  con:query("BEGIN")
  run("UPDATE warehouse SET w_ytd = w_ytd + %s WHERE w_id = %d", amount, warehouse)
  local w = one("SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse WHERE w_id = %d",
    warehouse)
  local at = string.format("d_w_id = %d AND d_id = %d", warehouse, district)
  run("UPDATE district SET d_ytd = d_ytd + %s WHERE %s", amount, at)
  local d = one("SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district WHERE %s", at)
  local customer = customer_by_name_or_id(customer_warehouse, customer_district)
  local key = string.format("c_w_id = %d AND c_d_id = %d AND c_id = %d", customer_warehouse,
    customer_district, customer)
  local found = one("SELECT c_credit, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, " ..
    "c_zip, c_phone, c_since, c_credit_lim, c_discount, c_balance FROM customer WHERE %s FOR UPDATE", key)
  local more = ""
  if found[1] == "BC" then
    more = string.format(", c_data = LEFT(CONCAT('%d %d %d %d %d %s|', c_data), 500)", customer,
      customer_district, customer_warehouse, district, warehouse, amount)
  end
  run("UPDATE customer SET c_balance = c_balance - %s, c_ytd_payment = c_ytd_payment + %s, " ..
    "c_payment_cnt = c_payment_cnt + 1%s WHERE %s", amount, amount, more, key)
  run("INSERT INTO history VALUES (%d, %d, %d, %d, %d, NOW(), %s, '%s    %s')", customer, customer_district,
    customer_warehouse, district, warehouse, amount, w[1], d[1])
  con:query("COMMIT")
end

local function order_status()
  local warehouse, district = any_warehouse(), between(1, DISTRICTS)
  con:query("BEGIN")
  local customer = customer_by_name_or_id(warehouse, district)
  one("SELECT c_balance, c_first, c_middle, c_last FROM customer WHERE c_w_id = %d AND c_d_id = %d " ..
    "AND c_id = %d", warehouse, district, customer)
  local order = one("SELECT o_id, o_carrier_id, o_entry_d FROM orders WHERE o_w_id = %d AND o_d_id = %d " ..
    "AND o_c_id = %d ORDER BY o_id DESC LIMIT 1", warehouse, district, customer)
  run("SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line " ..
    "WHERE ol_w_id = %d AND ol_d_id = %d AND ol_o_id = %d", warehouse, district, order[1])
  con:query("COMMIT")
end

-- Statements that change come before those that read: a snapshot may be older than the order.
local function deliver(warehouse, district, carrier)
  local oldest = row("SELECT no_o_id FROM new_orders WHERE no_w_id = %d AND no_d_id = %d " ..
    "ORDER BY no_o_id LIMIT 1 FOR UPDATE", warehouse, district)
  if oldest == nil then return end
  local order = tonumber(oldest[1])
  local key = string.format("o_w_id = %d AND o_d_id = %d AND o_id = %d", warehouse, district, order)
  local lines = string.format("ol_w_id = %d AND ol_d_id = %d AND ol_o_id = %d", warehouse, district, order)
  run("DELETE FROM new_orders WHERE no_w_id = %d AND no_d_id = %d AND no_o_id = %d", warehouse, district, order)
  run("UPDATE orders SET o_carrier_id = %d WHERE %s", carrier, key)
  local customer = one("SELECT o_c_id FROM orders WHERE %s", key)[1]
  run("UPDATE order_line SET ol_delivery_d = NOW() WHERE %s", lines)
  local amount = one("SELECT SUM(ol_amount) FROM order_line WHERE %s", lines)[1]
  run("UPDATE customer SET c_balance = c_balance + %s, c_delivery_cnt = c_delivery_cnt + 1 " ..
    "WHERE c_w_id = %d AND c_d_id = %d AND c_id = %s", amount, warehouse, district, customer)
end

local function delivery()
  local warehouse, carrier = any_warehouse(), between(1, 10)
  con:query("BEGIN")
  for district = 1, DISTRICTS do deliver(warehouse, district, carrier) end
  con:query("COMMIT")
end

local function stock_level()
  local warehouse, district, threshold = any_warehouse(), between(1, DISTRICTS), between(10, 20)
  con:query("BEGIN")
  local next = tonumber(one("SELECT d_next_o_id FROM district WHERE d_w_id = %d AND d_id = %d", warehouse,
    district)[1])
  one("SELECT COUNT(DISTINCT s_i_id) FROM order_line JOIN stock ON s_w_id = ol_w_id AND s_i_id = ol_i_id " ..
    "WHERE ol_w_id = %d AND ol_d_id = %d AND ol_o_id BETWEEN %d AND %d AND s_quantity < %d", warehouse,
    district, next - 20, next - 1, threshold)
  con:query("COMMIT")
end

local MIX = {
  {part = 45, transaction = new_order},
  {part = 43, transaction = payment},
  {part = 4, transaction = order_status},
  {part = 4, transaction = delivery},
  {part = 4, transaction = stock_level},
}

local function chosen()
  local ticket = between(1, 100)
  for kind, entry in ipairs(MIX) do
    ticket = ticket - entry.part
    if ticket <= 0 then return kind end
  end
end

function thread_init()
  con, size = sysbench.sql.driver():connect(), sizes()
  done, rolled_back = {0, 0, 0, 0, 0}, 0
end

-- How many of each kind, and how many orders were rolled back: one write, so that threads do not mix.
function thread_done()
  io.stdout:write(string.format("tpcc %s %d\n", table.concat(done, " "), rolled_back))
  io.stdout:flush()
  con:disconnect()
end

-- A timeout rolls back its statement only.
sysbench.hooks.before_restart_event = function() con:query("ROLLBACK") end

function event()
  pending = pending or chosen()
  MIX[pending].transaction()
  done[pending] = done[pending] + 1
  pending = nil
end

function cleanup()
  local connection = sysbench.sql.driver():connect()
  for _, entry in ipairs(TABLES) do connection:query("DROP TABLE IF EXISTS " .. entry[1]) end
end
