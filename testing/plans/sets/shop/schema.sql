-- A wholesaler: depots with districts, buyers, sales and supplies.
create table depot (
  d_id smallint not null primary key, name varchar(10), street varchar(20), town varchar(20),
  zip char(9), tax decimal(4,4), turnover decimal(12,2));
create table district (
  d_id smallint not null, r_id tinyint not null, name varchar(10), street varchar(20),
  town varchar(20), tax decimal(4,4), turnover decimal(12,2), next_sale int,
  primary key (d_id, r_id));
create table buyer (
  d_id smallint not null, r_id tinyint not null, b_id int not null, first_name varchar(16),
  middle char(2), last_name varchar(16), street varchar(20), town varchar(20), phone char(16),
  since datetime, credit char(2), credit_limit bigint, discount decimal(4,2),
  balance decimal(12,2), paid decimal(12,2), payments smallint, notes text,
  primary key (d_id, r_id, b_id), key by_name (d_id, r_id, last_name, first_name));
create table payment (
  b_id int, b_r_id tinyint, b_d_id smallint, r_id tinyint, d_id smallint, paid_at datetime,
  amount decimal(6,2), notes varchar(24), key by_buyer (b_d_id, b_r_id, b_id));
create table sale (
  d_id smallint not null, r_id tinyint not null, s_id int not null, b_id int, made_at datetime,
  carrier tinyint, line_count tinyint, is_local tinyint,
  primary key (d_id, r_id, s_id), key by_buyer (d_id, r_id, b_id, s_id));
create table pending (
  d_id smallint not null, r_id tinyint not null, s_id int not null,
  primary key (d_id, r_id, s_id));
create table article (
  a_id int not null primary key, image int, name varchar(24), price decimal(5,2),
  notes varchar(50));
create table supply (
  d_id smallint not null, a_id int not null, quantity smallint, place_1 char(24),
  place_2 char(24), sold decimal(8,0), sales smallint, remote_sales smallint, notes varchar(50),
  primary key (d_id, a_id), key by_article (a_id));
create table sale_line (
  d_id smallint not null, r_id tinyint not null, s_id int not null, line tinyint not null,
  a_id int, supply_d_id smallint, delivered_at datetime, quantity tinyint, amount decimal(6,2),
  place char(24),
  primary key (d_id, r_id, s_id, line), key by_supply (supply_d_id, a_id));
